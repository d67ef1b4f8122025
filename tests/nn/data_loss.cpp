// Losses and gradients of a loader's batches: each token counts once, however batches are split.
#include "nn/data_support.h"

using namespace cleave;
using namespace cleave::test;
using nn::LoaderOptions;
using nn::TokenDataset;
using nn::TokenLoader;

namespace {

constexpr int64_t kVocab = 7;

TokenDataset seven_tokens(const TemporaryFolder& folder, int64_t count) {
  nn::TokenFileWriter writer(folder.path("t"), kVocab);
  std::vector<uint32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<uint32_t>((i * i + 3 * i) % kVocab));
  writer.append(tokens);
  writer.commit();
  return TokenDataset(folder.path("t"));
}

struct Result {
  std::vector<double> losses, gradients;
};

// A table of logits by token, its gradient accumulated over the parts of a batch.
Result losses(TokenLoader& loader, const Tensor& table, const std::vector<size_t>& order = {}) {
  Result r;
  while (auto batch = loader.next()) {
    double loss = 0;
    for (size_t i = 0; i < batch->parts.size(); ++i) {
      const nn::MicroBatch& part = batch->parts[order.empty() ? i : order[i]];
      Tensor logits = transpose(embedding(part.ids, table), 1, 2);
      Tensor l = cross_entropy(logits, part.targets, {.reduction = "sum"}) / static_cast<double>(batch->tokens);
      l.backward({.sync = i + 1 == batch->parts.size()});
      loss += item<double>(l);
    }
    r.losses.push_back(loss);
    auto gradient = to_vector<double>(table.grad());
    r.gradients.insert(r.gradients.end(), gradient.begin(), gradient.end());
    table.zero_grad();
  }
  return r;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double d = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) d = std::max(d, std::abs(a[i] - b[i]));
  return d;
}

}  // namespace

TEST_CASE("ranks with 5 and 1 valid tokens give the loss and gradient of one rank with 6") {
  TemporaryFolder folder;
  TokenDataset data = seven_tokens(folder, 7);  // windows of 5 and of 1 target
  LoaderOptions options{.batch = 2, .seq = 5, .shuffle = false, .drop_last = false, .epochs = 1};
  Tensor values = normal(3, {kVocab, kVocab});
  TokenLoader whole(data, options);
  Result expected = losses(whole, values.detach().set_requires_grad());
  CHECK(expected.losses.size() == 1);
  // The mean over the valid tokens, by the definition.
  std::vector<double> v = to_vector<double>(values);
  std::vector<int64_t> t = read_all(data);
  double mean = 0;
  for (size_t i = 0; i + 1 < t.size(); ++i) {
    double total = 0;
    for (size_t c = 0; c < kVocab; ++c) total += std::exp(v[static_cast<size_t>(t[i]) * kVocab + c]);
    mean += (std::log(total) - v[static_cast<size_t>(t[i] * kVocab + t[i + 1])]) / 6;
  }
  CHECK(expected.losses[0] == doctest::Approx(mean).epsilon(1e-12));
  for (const char* layout : {"dp, -", "-, dp"})
    on_ranks({2, 3, 4}, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, {{"dp", world.size()}});
      LoaderOptions split = options;
      split.layout = mesh.layout(layout);
      TokenLoader loader(data, split);
      Result r = losses(loader, dist::replicate(clone(values), mesh).set_requires_grad());
      CHECK(difference(r.losses, expected.losses) < 1e-12);
      CHECK(difference(r.gradients, expected.gradients) < 1e-12);
    });
}

TEST_CASE("accumulation over micro-batches of unlike token counts is the whole batch, in any order, on any ranks") {
  TemporaryFolder folder;
  TokenDataset data = seven_tokens(folder, 40);
  LoaderOptions options{.batch = 6, .seq = 4, .seed = 2, .drop_last = false, .epochs = 1};
  Tensor values = normal(5, {kVocab, kVocab});
  TokenLoader whole(data, options);
  Result expected = losses(whole, values.detach().set_requires_grad());
  CHECK(expected.losses.size() == 2);  // the second batch has 15 targets of 24
  options.micro_batches = 3;
  for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 0, 1}, {1, 2, 0}})
    on_ranks({1, 2, 4}, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, {{"dp", world.size()}});
      LoaderOptions split = options;
      split.layout = mesh.layout("dp, -");
      TokenLoader loader(data, split);
      Result r = losses(loader, dist::replicate(clone(values), mesh).set_requires_grad(), order);
      CHECK(difference(r.losses, expected.losses) < 1e-12);
      CHECK(difference(r.gradients, expected.gradients) < 1e-12);
    });
}

TEST_CASE("dropout of a split batch is the one of the whole batch: samples on several ranks have unlike masks") {
  TemporaryFolder folder;
  TokenDataset data = seven_tokens(folder, 65);
  LoaderOptions options{.batch = 4, .seq = 16, .seed = 2};
  Tensor table = ones({kVocab, 3}, {.dtype = DType::f64});
  TokenLoader whole(data, options);
  seed(11);
  std::vector<double> expected = to_vector<double>(dropout(embedding(whole.next()->parts[0].ids, table), 0.5));
  auto sample = [&](size_t row) {
    return std::vector<double>(expected.begin() + static_cast<std::ptrdiff_t>(row * 48),
                               expected.begin() + static_cast<std::ptrdiff_t>(row * 48 + 48));
  };
  CHECK(sample(0) != sample(1));
  CHECK(sample(0) != sample(2));
  on_ranks({2, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", world.size()}});
    LoaderOptions split = options;
    split.layout = mesh.layout("dp, -");
    TokenLoader loader(data, split);
    seed(11);
    Tensor x = dropout(embedding(loader.next()->parts[0].ids, dist::replicate(clone(table), mesh)), 0.5);
    CHECK(to_vector<double>(x) == expected);
  });
}
