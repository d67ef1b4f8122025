#include "support/programs.h"

#include <cleave/autograd/gradient_rules.h>
#include <cleave/cleave.h>

#include <cmath>
#include <optional>

#include "dist/all_layouts.h"
#include "support/placement.h"

namespace cleave::test {
namespace {

enum class Kind {
  add,
  mul,
  scale,
  matmul,
  transpose,
  sum,
  mean,
  tanh,
  softmax,
  amax,
  norm,
  reshape,
  slice,
  cat,
  unbind,
  move,
  count
};
constexpr const char* kNames[] = {"add",     "mul",  "scale", "matmul",  "transpose", "sum", "mean",   "tanh",
                                  "softmax", "amax", "norm",  "reshape", "slice",     "cat", "unbind", "move"};

struct Instruction {
  Kind kind;
  size_t a, b;      // operands, by number in the pool
  uint64_t random;  // what else is to be chosen
};

/// All values are matrices. Leaves come first in the pool.
struct Program {
  uint64_t seed;
  std::vector<Shape> leaves;
  std::vector<Instruction> steps;
  std::vector<Shape> shapes;  // of the whole pool
  std::vector<size_t> outputs;
};

bool broadcasts(const Shape& x, const Shape& y) {
  for (int d = 0; d < 2; ++d)
    if (x[d] != y[d] && x[d] != 1 && y[d] != 1) return false;
  return true;
}

// The shapes of what the instruction adds to the pool; nothing if it does not fit its operands.
std::vector<Shape> results(const Instruction& i, const Shape& x, const Shape& y) {
  auto larger = [](int64_t m, int64_t n) { return m == 1 ? n : m; };
  int dim = static_cast<int>(i.random % 2);
  switch (i.kind) {
    case Kind::add:
    case Kind::mul:
      return broadcasts(x, y) ? std::vector<Shape>{{larger(x[0], y[0]), larger(x[1], y[1])}} : std::vector<Shape>{};
    case Kind::matmul:
      return x[1] == y[0] ? std::vector<Shape>{{x[0], y[1]}} : std::vector<Shape>{};
    case Kind::transpose:
      return {{x[1], x[0]}};
    case Kind::sum:
    case Kind::mean:
    case Kind::amax:
      if (x[dim] == 0) return {};
      return {dim ? Shape{x[0], 1} : Shape{1, x[1]}};
    case Kind::reshape:
      return {{x[1], x[0]}};
    case Kind::slice:
      return x[dim] < 2 ? std::vector<Shape>{}
                        : std::vector<Shape>{dim ? Shape{x[0], x[1] - 1} : Shape{x[0] - 1, x[1]}};
    case Kind::cat:
      return x[0] + y[0] <= 9 && x[1] == y[1] ? std::vector<Shape>{{x[0] + y[0], x[1]}} : std::vector<Shape>{};
    case Kind::unbind:
      return x[0] == 2 || x[0] == 3 ? std::vector<Shape>{{1, x[1]}, {1, x[1]}} : std::vector<Shape>{};
    case Kind::norm:
      return x[1] == 0 ? std::vector<Shape>{} : std::vector<Shape>{x};
    default:
      return {x};
  }
}

Program make_program(uint64_t seed) {
  Program p{seed, {}, {}, {}, {}};
  uint64_t draws = 0;
  auto draw = [&] { return mix(seed, ++draws); };
  const int64_t sizes[] = {1, 2, 3, 3, 4, 5, 5, 7};
  auto size = [&] { return draw() % 40 == 0 ? 0 : sizes[draw() % 8]; };
  int64_t common = size();
  for (int i = 0; i < 3; ++i)
    p.leaves.push_back(i == 1 ? Shape{common, size()} : Shape{draw() % 3 ? size() : 1, common});
  p.shapes = p.leaves;
  size_t length = 5 + draw() % 8;
  for (int tries = 0; p.steps.size() < length && tries < 200; ++tries) {
    size_t n = p.shapes.size();
    auto recent = [&] { return draw() % 2 ? n - 1 - draw() % std::min<size_t>(n, 3) : draw() % n; };
    Instruction i{static_cast<Kind>(draw() % static_cast<uint64_t>(Kind::count)), recent(), recent(), draw()};
    if (draw() % 4 == 0) i.kind = Kind::move;
    std::vector<Shape> out = results(i, p.shapes[i.a], p.shapes[i.b]);
    if (out.empty()) continue;
    p.steps.push_back(i);
    p.shapes.insert(p.shapes.end(), out.begin(), out.end());
  }
  p.outputs.push_back(p.shapes.size() - 1);
  for (size_t more = draw() % 3; more > 0; --more) {
    size_t k = p.leaves.size() + draw() % (p.shapes.size() - p.leaves.size());
    if (std::find(p.outputs.begin(), p.outputs.end(), k) == p.outputs.end()) p.outputs.push_back(k);
  }
  return p;
}

dist::Layout pick_layout(dist::DeviceMesh mesh, uint64_t random) {
  std::vector<dist::Layout> all = all_layouts(mesh, 2);
  return all[random % all.size()];
}

std::vector<Tensor> execute(const Instruction& i, const Tensor& x, const Tensor& y) {
  int64_t dim = static_cast<int64_t>(i.random % 2);
  switch (i.kind) {
    case Kind::add:
      return {x + y};
    case Kind::mul:
      return {x * y};
    case Kind::scale:
      return {x * (static_cast<double>(i.random % 5) - 2.5)};
    case Kind::matmul:
      return {matmul(x, y)};
    case Kind::transpose:
      return {transpose(x, 0, 1)};
    case Kind::sum:
      return {sum(x, dim, true)};
    case Kind::mean:
      return {mean(x, dim, true)};
    case Kind::tanh:
      return {tanh(x)};
    case Kind::softmax:
      return {softmax(x, dim)};
    case Kind::amax:
      return {amax(x, dim, true)};
    case Kind::norm:
      return {layer_norm(x, {x.size(1)}, {}, {}, 0.1)};
    case Kind::reshape:
      return {reshape(x, {x.size(1), x.size(0)})};
    case Kind::slice:
      return {slice(x, dim, 1, x.size(dim))};
    case Kind::cat:
      return {cat({x, y}, 0)};
    case Kind::unbind: {
      std::vector<Tensor> rows = unbind(x, 0);
      return {unsqueeze(rows[0], 0), unsqueeze(rows.back(), 0)};
    }
    case Kind::move:
      return {x.is_distributed() ? dist::redistribute(x, pick_layout(x.layout().mesh(), i.random)) : x};
    case Kind::count:
      break;
  }
  return {};
}

std::vector<Tensor> execute(const Program& p, std::vector<Tensor> pool) {
  for (const Instruction& i : p.steps)
    for (Tensor& y : execute(i, pool[i.a], pool[i.b])) pool.push_back(std::move(y));
  std::vector<Tensor> out;
  for (size_t k : p.outputs) out.push_back(pool[k]);
  return out;
}

Values numbers(const Shape& shape, uint64_t seed) {
  Values out{DType::f64, shape, {}};
  for (int64_t i = 0; i < numel(shape); ++i)
    out.v.push_back(std::round((unit(mix(seed, static_cast<uint64_t>(i))) - 0.5) * 0x1p22) * 0x1p-20);
  return out;
}

struct Expected {
  std::vector<Values> leaves, outputs, cotangents, gradients;
};

Expected run_plain(const Program& p) {
  Expected e;
  std::vector<Tensor> leaves;
  for (size_t i = 0; i < p.leaves.size(); ++i) {
    e.leaves.push_back(numbers(p.leaves[i], mix(p.seed, 1000 + i)));
    leaves.push_back(make_tensor(e.leaves[i], DType::f64).set_requires_grad());
  }
  std::vector<Tensor> outputs = execute(p, leaves);
  std::vector<Seed> seeds;
  for (size_t k = 0; k < outputs.size(); ++k) {
    e.outputs.push_back(values_of(outputs[k]));
    e.cotangents.push_back(numbers(outputs[k].shape(), mix(p.seed, 2000 + k)));
    seeds.push_back({make_tensor(e.cotangents[k], DType::f64)});
  }
  std::vector<Tensor> gradients = run_backward(leaves, outputs, seeds);
  for (size_t i = 0; i < leaves.size(); ++i)
    e.gradients.push_back(gradients[i].defined()
                              ? values_of(gradients[i])
                              : Values{DType::f64, p.leaves[i], std::vector<double>(e.leaves[i].v.size(), 0.0)});
  return e;
}

struct Seen {
  std::string error, collectives;
  std::vector<Held> outputs;
  std::vector<std::optional<Held>> gradients;
};

Seen run_split(const Program& p, const Expected& e, dist::DeviceMesh mesh) {
  Seen seen;
  try {
    dist::record_collectives(true);
    std::vector<Tensor> leaves;
    for (size_t i = 0; i < p.leaves.size(); ++i) {
      uint64_t r = mix(p.seed, 3000 + i);
      leaves.push_back(place(e.leaves[i], DType::f64, pick_layout(mesh, r).data(), r).set_requires_grad());
      if (mix(r, 1) % 2) leaves[i].impl()->parameter = false;
    }
    std::vector<Tensor> outputs = execute(p, leaves);
    std::vector<Seed> seeds;
    for (size_t k = 0; k < outputs.size(); ++k) {
      seen.outputs.push_back(hold(outputs[k]));
      uint64_t r = mix(p.seed, 4000 + k);
      const dist::LayoutData* layout = outputs[k].impl()->layout;
      dist::AxisMask partial = r % 2 ? autograd::replicated_axes(layout) & static_cast<uint32_t>(mix(r, 1)) : 0;
      seeds.push_back(
          {place(e.cotangents[k], DType::f64, autograd::gradient_layout(layout, partial), r).local(), partial});
    }
    for (const Tensor& g : run_backward(leaves, outputs, seeds))
      seen.gradients.push_back(g.defined() ? std::optional(hold(g)) : std::nullopt);
    for (const dist::CommEvent& event : dist::recorded_collectives())
      seen.collectives += std::string(dist::to_string(event.kind)) + "(" + event.axis + ") ";
  } catch (const CommError&) { throw; } catch (const Error& error) {
    seen.error = error.what();
  }
  return seen;
}

std::string fault_of(const Expected& e, std::span<const Seen* const> ranks, const dist::MeshState& mesh) {
  for (const Seen* seen : ranks) {
    if (!seen->error.empty()) return "threw " + seen->error;
    if (seen->collectives != ranks[0]->collectives) return "other collectives on other ranks";
  }
  auto compare = [&](const std::string& name, auto&& pick, const Values& want) -> std::string {
    std::vector<const Held*> held;
    for (const Seen* seen : ranks)
      if (const Held* h = pick(*seen)) held.push_back(h);
    if (held.empty())
      return std::all_of(want.v.begin(), want.v.end(), [](double x) { return x == 0; }) ? "" : name + " is missing";
    if (held.size() != ranks.size()) return name + " is missing on some ranks";
    std::string d = check_held(held, mesh, want, 1e-11);
    return d.empty() ? "" : name + ": " + d;
  };
  for (size_t k = 0; k < e.outputs.size(); ++k) {
    std::string d = compare(
        "output " + std::to_string(k), [&](const Seen& s) { return &s.outputs[k]; }, e.outputs[k]);
    if (!d.empty()) return d;
  }
  for (size_t i = 0; i < e.gradients.size(); ++i) {
    std::string d = compare(
        "gradient of leaf " + std::to_string(i),
        [&](const Seen& s) { return s.gradients[i] ? &*s.gradients[i] : nullptr; }, e.gradients[i]);
    if (!d.empty()) return d;
  }
  return "";
}

std::string describe_program(const Program& p) {
  std::string out = "program.";
  out.append(std::to_string(p.seed)).append(":");
  for (const Shape& s : p.leaves) out.append(" ").append(to_string(s));
  size_t next = p.leaves.size();
  for (const Instruction& i : p.steps) {
    out.append("; ").append(std::to_string(next)).append(" = ").append(kNames[static_cast<int>(i.kind)]);
    out.append("(").append(std::to_string(i.a)).append(", ").append(std::to_string(i.b)).append(")");
    next += i.kind == Kind::unbind ? 2 : 1;
  }
  out += "; outputs";
  for (size_t k : p.outputs) out.append(" ").append(std::to_string(k));
  return out;
}

}  // namespace

void check_programs(uint64_t first, uint64_t count, const std::vector<dist::MeshAxis>& axes, Report& report) {
  int ranks = 1;
  for (const auto& a : axes) ranks *= a.size;
  std::vector<Program> programs;
  std::vector<Expected> expected;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Program p = make_program(seed);
    if (selecting() && !selected(describe_program(p))) continue;
    expected.push_back(run_plain(p));
    programs.push_back(std::move(p));
  }
  constexpr size_t kBatch = 64;  // programs between two looks at what all ranks saw
  std::vector<std::vector<Seen>> seen(static_cast<size_t>(ranks));
  try {
    dist::run_ranks({.ranks = ranks, .checked = 1}, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, axes);
      std::vector<Seen>& mine = seen[static_cast<size_t>(world.rank())];
      for (size_t start = 0; start < programs.size(); start += kBatch) {
        mine.clear();
        size_t end = std::min(programs.size(), start + kBatch);
        for (size_t k = start; k < end; ++k) mine.push_back(run_split(programs[k], expected[k], mesh));
        world.communicator().barrier();
        for (size_t k = start + static_cast<size_t>(world.rank()); k < end; k += static_cast<size_t>(ranks)) {
          std::vector<const Seen*> all;
          for (const auto& s : seen) all.push_back(&s[k - start]);
          report.count();
          std::string fault = fault_of(expected[k], all, *mesh.state());
          if (!fault.empty()) report.fail(describe_program(programs[k]) + " on " + to_string(mesh) + ": " + fault);
        }
        world.communicator().barrier();
      }
    });
  } catch (const std::exception& e) { report.fail(std::string("the ranks stopped: ") + e.what()); }
}

}  // namespace cleave::test
