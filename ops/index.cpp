#include <cleave/core/cpu/index.h>
#include <cleave/ops/index.h>
#include <cleave/ops/internal/letters.h>
#include <cleave/ops/op.h>

namespace cleave {
namespace ops {
namespace {

/// `first`: the global index of the first row that this rank holds; `size`: the global number of rows.
struct IndexAttributes {
  int64_t dim;
  int64_t size;
  int64_t first;
};
constexpr size_t kKey = sizeof(int64_t);  // the dim

void require_index(const char* op, const Tensor& index) {
  if (index.dtype() != DType::i64 && index.dtype() != DType::i32)
    throw DTypeError(
        op_message(op, "the index is " + describe(index.type()) + " and must be i64 or i32; cast it first"));
}

void locate(const LocalizeCall& call, void* attributes) {
  auto& a = *static_cast<IndexAttributes*>(attributes);
  a.first = call.in_offset(0)[a.dim];
}

int64_t scratch(const KernelCall& c) { return cpu::index_scratch(*c.in[1]); }

// The indexed dim of x is a reduced letter: a rank adds the rows it holds, and zeros for others.

void infer_embedding(const InferCall& call, std::span<OutputType> out) {
  require_index("embedding", *call.in[1]);
  if (call.shape(0).rank() < 1)
    throw ShapeError(
        op_message("embedding", "the weight is " + describe(call.in[0]->type()) + " and must have a dim of rows"));
  Shape shape = call.shape(1);
  for (int d = 1; d < call.shape(0).rank(); ++d) shape.push_back(call.shape(0)[d]);
  out[0] = {call.dtype(0), shape};
}
Rule embedding_rule(const RuleCall& call) {
  int rows = call.in[1].shape.rank(), features = call.in[0].shape.rank() - 1;
  Rule rule;
  OperandLetters ids = plain_letters(rows), rest = plain_letters(features, rows), table{{'v'}};
  table.insert(table.end(), rest.begin(), rest.end());
  OperandLetters out = ids;
  out.insert(out.end(), rest.begin(), rest.end());
  rule.in = {table, ids};
  rule.out = {out};
  rule.reduced = {'v'};
  rule.linear = {0b01};
  return rule;
}
void embedding_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<IndexAttributes>();
  cpu::check_indices("embedding", *c.in[1], a.size);
  cpu::take_rows(*c.in[0], *c.in[1], a.first, *c.out[0]);
}
void embedding_backward(const BackwardCall& c, std::span<Tensor> out) {
  static constexpr Kernel kernel{.cpu =
                                     [](const KernelCall& k) {
                                       cpu::add_rows(*k.in[0], *k.in[1], k.attributes.as<IndexAttributes>().first,
                                                     *k.out[0]);
                                     },
                                 .cpu_scratch = scratch};
  if (c.needs[0])
    out[0] = run_kernel(kernel, "embedding", {&c.grads[0], &c.inputs[1]}, c.input_shape(0), c.gradient_dtype(0),
                        c.attributes);
}

void infer_index_select(const InferCall& call, std::span<OutputType> out) {
  require_index("index_select", *call.in[1]);
  if (call.shape(1).rank() != 1)
    throw ShapeError(
        op_message("index_select", "the index is " + describe(call.in[1]->type()) + " and must have one dim"));
  out[0] = {call.dtype(0), call.shape(0)};
  out[0].shape[call.attributes.as<IndexAttributes>().dim] = call.shape(1)[0];
}
Rule index_select_rule(const RuleCall& call) {
  size_t dim = static_cast<size_t>(call.attributes.as<IndexAttributes>().dim);
  Rule rule;
  OperandLetters x = plain_letters(call.in[0].shape.rank()), out = x;
  x[dim] = {'v'};
  out[dim] = {'i'};
  rule.in = {x, {{'i'}}};
  rule.out = {out};
  rule.reduced = {'v'};
  rule.linear = {0b01};
  return rule;
}
void index_select_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<IndexAttributes>();
  cpu::check_indices("index_select", *c.in[1], a.size);
  cpu::index_select(*c.in[0], static_cast<int>(a.dim), *c.in[1], a.first, *c.out[0]);
}
void index_select_backward(const BackwardCall& c, std::span<Tensor> out) {
  static constexpr Kernel kernel{.cpu =
                                     [](const KernelCall& k) {
                                       const auto& a = k.attributes.as<IndexAttributes>();
                                       cpu::index_add(*k.in[0], static_cast<int>(a.dim), *k.in[1], a.first, *k.out[0]);
                                     },
                                 .cpu_scratch = scratch};
  if (c.needs[0])
    out[0] = run_kernel(kernel, "index_select", {&c.grads[0], &c.inputs[1]}, c.input_shape(0), c.input_dtype(0),
                        c.attributes);
}

void infer_gather(const InferCall& call, std::span<OutputType> out) {
  require_index("gather", *call.in[1]);
  const Shape &x = call.shape(0), &i = call.shape(1);
  int64_t dim = call.attributes.as<IndexAttributes>().dim;
  bool fits = x.rank() == i.rank();
  for (int d = 0; fits && d < x.rank(); ++d) fits = d == dim || i[d] <= x[d];
  if (!fits)
    throw ShapeError(op_message("gather", "the index " + describe(call.in[1]->type()) + " must have as many dims as " +
                                              describe(call.in[0]->type()) + " and be no larger outside dim " +
                                              std::to_string(dim)));
  out[0] = {call.dtype(0), i};
}
// Dims in which the index is shorter have no letter: their blocks would not line up.
Rule gather_rule(const RuleCall& call) {
  size_t dim = static_cast<size_t>(call.attributes.as<IndexAttributes>().dim);
  int rank = call.in[0].shape.rank();
  Rule rule;
  OperandLetters x = plain_letters(rank), index = x;
  for (int d = 0; d < rank; ++d)
    if (call.in[0].shape[d] != call.in[1].shape[d]) x[static_cast<size_t>(d)] = index[static_cast<size_t>(d)] = {};
  x[dim] = {'v'};
  index[dim] = {'i'};
  rule.in = {x, index};
  rule.out = {index};
  rule.reduced = {'v'};
  rule.linear = {0b01};
  return rule;
}
void gather_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<IndexAttributes>();
  cpu::check_indices("gather", *c.in[1], a.size);
  cpu::gather(*c.in[0], static_cast<int>(a.dim), *c.in[1], a.first, *c.out[0]);
}
void gather_backward(const BackwardCall& c, std::span<Tensor> out) {
  static constexpr Kernel kernel{.cpu =
                                     [](const KernelCall& k) {
                                       const auto& a = k.attributes.as<IndexAttributes>();
                                       cpu::scatter_add(*k.in[0], static_cast<int>(a.dim), *k.in[1], a.first,
                                                        *k.out[0]);
                                     },
                                 .cpu_scratch = scratch};
  if (c.needs[0])
    out[0] =
        run_kernel(kernel, "gather", {&c.grads[0], &c.inputs[1]}, c.input_shape(0), c.input_dtype(0), c.attributes);
}

Cost copy_cost(std::span<const View* const>, std::span<const View* const> out, const Attributes&) {
  return {0, 2.0 * static_cast<double>(out[0]->numel() * size_of(out[0]->dtype))};
}

Sample sample(const Shape& x, const Shape& index, int64_t dim) {
  return {.inputs = {{x}, {index, Fill::index, x[dim]}},
          .attributes = sample_attributes(IndexAttributes{dim, x[dim], 0}),
          .integers = true};
}

}  // namespace

extern const OpDef embedding{.name = "embedding",
                             .infer = infer_embedding,
                             .layout = embedding_rule,
                             .key_bytes = kKey,
                             .localize = locate,
                             .kernel = {.cpu = embedding_kernel, .cpu_scratch = scratch},
                             .backward = embedding_backward,
                             .saves = {.inputs = 0b10},
                             .cost = copy_cost,
                             .samples = [] {
                               return std::vector<Sample>{sample({5, 3}, {7}, 0), sample({7, 4}, {2, 3}, 0),
                                                          sample({5, 3}, {}, 0), sample({5, 3}, {0}, 0),
                                                          sample({1, 2}, {3}, 0)};
                             }};
extern const OpDef index_select{.name = "index_select",
                                .infer = infer_index_select,
                                .layout = index_select_rule,
                                .key_bytes = kKey,
                                .localize = locate,
                                .kernel = {.cpu = index_select_kernel, .cpu_scratch = scratch},
                                .backward = index_select_backward,
                                .saves = {.inputs = 0b10},
                                .cost = copy_cost,
                                .samples = [] {
                                  return std::vector<Sample>{sample({5, 7}, {3}, 0), sample({5, 7}, {9}, 1),
                                                             sample({2, 3, 4}, {2}, 1), sample({5, 7}, {0}, 1)};
                                }};
extern const OpDef gather{.name = "gather",
                          .infer = infer_gather,
                          .layout = gather_rule,
                          .key_bytes = kKey,
                          .localize = locate,
                          .kernel = {.cpu = gather_kernel, .cpu_scratch = scratch},
                          .backward = gather_backward,
                          .saves = {.inputs = 0b10},
                          .cost = copy_cost,
                          .samples = [] {
                            return std::vector<Sample>{sample({5, 7}, {5, 2}, 1), sample({5, 7}, {3, 7}, 0),
                                                       sample({5, 7}, {3, 4}, 0), sample({2, 3, 4}, {2, 5, 4}, 1),
                                                       sample({5, 7}, {5, 0}, 1)};
                          }};

}  // namespace ops

Tensor embedding(const Tensor& ids, const Tensor& weight) {
  int64_t rows = weight.dim() ? weight.shape()[0] : 0;
  return apply(ops::embedding, ops::IndexAttributes{0, rows, 0}, weight, ids);
}
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  int64_t d = wrap_dim("index_select", dim, x.type());
  return apply(ops::index_select, ops::IndexAttributes{d, x.shape()[d], 0}, x, index);
}
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  int64_t d = wrap_dim("gather", dim, x.type());
  return apply(ops::gather, ops::IndexAttributes{d, x.shape()[d], 0}, x, index);
}

}  // namespace cleave
