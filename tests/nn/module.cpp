// The tree of modules: names, handles, ties, and what operator() lets through.
#include "nn/support.h"

#include <tuple>

using namespace cleave;
using namespace cleave::test;

namespace {

struct Leaf : nn::Module<Leaf> {
  nn::Parameter w{this, "w", Shape{2}, nn::init::constant(3)};
  std::optional<nn::Parameter> extra;
  Leaf(nn::ModuleBase* parent, std::string name, bool with_extra = false) : Module(parent, name) {
    if (with_extra) extra.emplace(this, "extra", Shape{1});
  }
  Tensor forward(const Tensor& x) const { return x * w; }
};

struct Tree : nn::Module<Tree> {
  nn::Parameter own{this, "own", Shape{1}};
  nn::List<Leaf> leaves{this, "leaves", 2, true};
  nn::Buffer mean{this, "mean", Shape{2}};
  nn::Buffer mask{this, "mask", Shape{2}, DType::boolean, nn::init::ones()};
  Leaf last{this, "last"};
  nn::Parameter tied{this, "tied", leaves[0].w};
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (const Leaf& leaf : leaves) y = leaf(y);
    return last(y) + own;
  }
};

std::vector<std::string> names(const std::vector<std::pair<std::string, nn::Parameter>>& list) {
  std::vector<std::string> out;
  for (auto& [name, p] : list) out.push_back(name);
  return out;
}

}  // namespace

TEST_CASE("members register under dotted names, a tie is listed once") {
  Tree tree;
  using Names = std::vector<std::string>;
  CHECK(names(tree.named_parameters()) ==
        Names{"own", "leaves.0.w", "leaves.0.extra", "leaves.1.w", "leaves.1.extra", "last.w"});
  CHECK(names(tree.named_parameters_with_ties()) ==
        Names{"own", "tied", "leaves.0.w", "leaves.0.extra", "leaves.1.w", "leaves.1.extra", "last.w"});
  CHECK(tree.parameter("tied") == tree.parameter("leaves.0.w"));
  CHECK(tree.parameter("tied").name() == "leaves.0.w");
  CHECK(tree.leaves[1].path() == "leaves.1");
  CHECK(tree.module("leaves.1").parent() == &tree.module("leaves"));
  CHECK(names(tree.module("leaves.1").named_parameters()) == Names{"w", "extra"});
  std::vector<std::string> modules;
  for (auto& [name, m] : tree.named_modules()) modules.push_back(name);
  CHECK(modules == Names{"", "leaves", "leaves.0", "leaves.1", "last"});
  CHECK(tree.named_buffers().size() == 2);
  CHECK(tree.buffers()[1].dtype() == DType::boolean);
  check_throws<ValueError>([&] { tree.module("leaves.7"); }, {"leaves.7", "leaves.0", "leaves.1"});
  check_throws<ValueError>([&] { tree.parameter("last.v"); }, {"last.v", "last.w"});
}

TEST_CASE("a tie whose first name is outside the part asked for is listed there") {
  Tree tree;
  struct Holder : nn::Module<Holder> {
    nn::Parameter w;
    explicit Holder(const nn::Parameter& other) : w(this, "copy", other) {}
  } holder(tree.own);
  CHECK(names(holder.named_parameters()) == std::vector<std::string>{"copy"});
  CHECK(holder.parameters()[0].name() == "own");
}

TEST_CASE("bad names, and parts that come and go") {
  Tree tree;
  check_throws<ValueError>([&] { Leaf again(&tree, "last"); }, {"last", "twice"});
  check_throws<ValueError>([&] { Leaf dotted(&tree, "a.b"); }, {"a.b", "dot"});
  check_throws<ValueError>([&] { nn::Parameter p(&tree, "mean", Shape{1}); }, {"mean", "twice"});
  check_throws<ValueError>([&] { nn::Parameter p(nullptr, "lost", Shape{1}); }, {"lost", "this"});
  {
    std::optional<nn::Linear> part;
    part.emplace(&tree, "part", 2, 3);
    CHECK(tree.named_parameters().size() == 8);
  }
  CHECK(tree.named_parameters().size() == 6);
  nn::Linear again(&tree, "part", 2, 3);
  CHECK(tree.named_parameters().size() == 8);
}

TEST_CASE("a parameter reads as a tensor, requires grad, and can be frozen and assigned") {
  Tree tree;
  nn::Parameter w = tree.parameter("last.w");
  CHECK(w.requires_grad());
  CHECK(w.tensor().impl()->parameter);
  Tensor y = sum(tensor<float>({1, 2}) * w);
  y.backward();
  CHECK(to_vector<float>(w.grad()) == std::vector<float>{1, 2});
  tree.zero_grad();
  CHECK(!w.grad().defined());
  w.set_requires_grad(false);
  CHECK(!(tensor<float>({1, 2}) * w).requires_grad());
  CHECK(w.tensor().impl()->parameter);
  w.assign(tensor<double>({5, 6}));
  CHECK(to_vector<float>(tree.last.w) == std::vector<float>{5, 6});
  check_throws<ShapeError>([&] { w.assign(ones({3})); }, {"last.w", "f32[3]", "f32[2]"});
}

TEST_CASE("train and eval reach everything below") {
  Tree tree;
  CHECK(tree.last.training());
  tree.eval();
  CHECK(!tree.leaves[1].training());
  tree.train();
  CHECK(tree.leaves[1].training());
}

namespace {

struct Many : nn::Module<Many> {
  std::tuple<Tensor, std::vector<Tensor>, int> forward(const std::vector<Tensor>& xs, int k,
                                                       const Tensor& bias = {}) const {
    std::vector<Tensor> doubled;
    for (const Tensor& x : xs) doubled.push_back(bias.defined() ? x * 2.0 + bias : x * 2.0);
    return {xs[0], doubled, k};
  }
};
struct Nothing : nn::Module<Nothing> {
  void forward(int& calls) const { ++calls; }
};

}  // namespace

TEST_CASE("forward may have any signature") {
  Many many;
  Tensor a = tensor<double>({1}), b = tensor<double>({2});
  auto [first, rest, k] = many(std::vector<Tensor>{a, b}, 7);
  CHECK(k == 7);
  CHECK(item<double>(first) == 1);
  CHECK(item<double>(rest[1]) == 4);
  auto [f2, r2, k2] = many(std::vector<Tensor>{a, b}, 7, a);
  CHECK(item<double>(r2[1]) == 5);
  Nothing nothing;
  int calls = 0;
  nothing(calls);
  CHECK(calls == 1);
}

TEST_CASE("an observer sees outputs innermost first, on its rank only, until it ends") {
  on_ranks({2}, [](dist::World& world) {
    Tree tree;
    std::vector<std::string> seen;
    {
      nn::OutputObserver observe([&](const nn::ModuleBase& m, std::span<const Tensor> outputs) {
        CHECK(outputs.size() == 1);
        seen.push_back(m.path());
      });
      if (world.rank() == 0) tree(ones({2}));
    }
    tree(ones({2}));
    using Names = std::vector<std::string>;
    CHECK(seen == (world.rank() == 0 ? Names{"leaves.0", "leaves.1", "last", ""} : Names{}));
  });
}

TEST_CASE("the first module whose output is not finite is found") {
  Tree tree;
  tree.leaves[1].w.assign(full({2}, INFINITY));
  std::string first = "none";
  nn::OutputObserver observe([&](const nn::ModuleBase& m, std::span<const Tensor> outputs) {
    if (first == "none" && !item<bool>(all(isfinite(outputs[0])))) first = m.path();
  });
  tree(ones({2}));
  CHECK(first == "leaves.1");
}
