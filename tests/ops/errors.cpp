// Errors of shapes, dtypes, layouts and options: typed, prefixed with the op, with the types, and saying what to do.
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

namespace {

Tensor of(const Shape& shape, DType dtype = DType::f32) { return zeros(shape, {.dtype = dtype}); }

}  // namespace

#define REFUSED(E, call, ...)                                               \
  do {                                                                      \
    std::string message = message_of<E>([&] { (void)(call); });             \
    CHECK_MESSAGE(contains(message, {__VA_ARGS__}), #call ": " << message); \
  } while (false)

TEST_CASE("shapes that do not fit are ShapeErrors with both types") {
  REFUSED(ShapeError, matmul(of({2, 8}), of({3, 4})), "[matmul]", "f32[2, 8]", "f32[3, 4]");
  REFUSED(ShapeError, matmul(of({2, 2, 3}), of({3, 3, 4})), "[matmul]", "[2, 2, 3]", "[3, 3, 4]");
  REFUSED(ShapeError, matmul(of({}), of({3})), "[matmul]", "scalar");
  REFUSED(ShapeError, linear(of({2, 8}), of({4, 7})), "[linear]", "[2, 8]", "[4, 7]");
  REFUSED(ShapeError, linear(of({2, 8}), of({4, 8}), of({5})), "[linear]", "bias", "[5]", "[4]");
  REFUSED(ShapeError, of({2, 3}) + of({4}), "[add]", "f32[2, 3]", "f32[4]", "3", "4");
  REFUSED(ShapeError, where(of({3}, DType::boolean), of({2}), of({1})), "[where]", "[3]");
  REFUSED(ShapeError, layer_norm(of({2, 8}), {7}), "[layer_norm]", "[2, 8]", "[7]");
  REFUSED(ShapeError, layer_norm(of({2, 8}), {8}, of({7})), "[layer_norm]", "weight", "[7]");
  REFUSED(ShapeError, rms_norm(of({2, 8}), {}), "[rms_norm]");
  REFUSED(ShapeError, reshape(of({2, 3}), {4, 2}), "[reshape]", "f32[2, 3]", "[4, 2]");
  REFUSED(ShapeError, reshape(of({2, 3}), {-1, 4}), "[reshape]");
  REFUSED(ShapeError, reshape(of({2, 3}), {-1, -1}), "[reshape]");
  REFUSED(ShapeError, expand(of({2, 3}), {2, 4}), "[expand]", "[2, 3]", "[2, 4]");
  REFUSED(ShapeError, permute(of({2, 3}), {0, 0}), "[permute]", "[0, 0]");
  REFUSED(ShapeError, cat({of({2, 3}), of({2, 4})}, 0), "[cat]");
  REFUSED(ShapeError, stack({of({2}), of({3})}), "[stack]", "[2]", "[3]");
  REFUSED(ShapeError, split(of({5}), std::vector<int64_t>{2, 2}, 0), "[split]", "5");
  REFUSED(ShapeError, gather(of({2, 3}), 1, of({3, 1}, DType::i64)), "[gather]");
  REFUSED(ShapeError, index_select(of({2, 3}), 0, of({2, 2}, DType::i64)), "[index_select]", "one dim");
  REFUSED(ShapeError, cross_entropy(of({4, 7}), of({5}, DType::i64)), "[cross_entropy]", "[4]", "i64[5]");
  REFUSED(ShapeError, rope(of({4, 3})), "[rope]", "even");
  REFUSED(ShapeError, scaled_dot_product_attention(of({1, 2, 3, 4}), of({1, 2, 3, 5}), of({1, 2, 3, 4})),
          "[scaled_dot_product_attention]", "[1, 2, 3, 5]");
  REFUSED(ShapeError, tensor<double>({1, 2}, {3}), "[tensor]", "2", "[3]");
  REFUSED(ShapeError, zeros({2, -1}), "[zeros]", "-1");
  REFUSED(ShapeError, item<float>(of({2})), "[item]", "2");
}

TEST_CASE("a dim out of range names the dim, the type and the range; a dim named twice is refused") {
  REFUSED(ShapeError, softmax(of({2, 8}), 3), "[softmax]", "dim 3", "f32[2, 8]", "0 to 1");
  REFUSED(ShapeError, softmax(of({2, 8}), -3), "[softmax]", "dim -3");
  REFUSED(ShapeError, sum(of({2, 8}), {0, 0}), "[sum]", "twice");
  REFUSED(ShapeError, sum(of({2, 8}), {1, -1}), "[sum]", "twice");
  REFUSED(ShapeError, transpose(of({2}), 0, 1), "[transpose]", "dim 1");
  REFUSED(ShapeError, slice(of({2}), 1, 0, 1), "[slice]", "dim 1");
  REFUSED(ShapeError, argmax(of({2}), 1), "[argmax]", "dim 1");
}

TEST_CASE("an extremum of nothing is refused; a sum of nothing is 0") {
  REFUSED(ShapeError, amax(of({0, 3}), 0), "[amax]", "empty");
  REFUSED(ShapeError, argmin(of({0}), 0), "[argmin]", "empty");
  CHECK(item<float>(sum(of({0}))) == 0);
  CHECK(to_vector<float>(amax(of({0, 3}), 1)).empty());
}

TEST_CASE("dtypes that an op does not take are DTypeErrors that say which and what to do") {
  REFUSED(DTypeError, embedding(of({3}), of({4, 2})), "[embedding]", "f32", "cast");
  REFUSED(DTypeError, where(of({3}), of({3}), of({3})), "[where]", "f32", "bool");
  REFUSED(DTypeError, masked_fill(of({3}), of({3}), 0.0), "[masked_fill]", "f32", "bool");
  REFUSED(DTypeError, softmax(of({3}, DType::i64), 0), "[softmax]", "i64", "cast");
  REFUSED(DTypeError, mean(of({3}, DType::i64)), "[mean]", "i64");
  REFUSED(DTypeError, matmul(of({2, 2}), of({2, 2}, DType::f64)), "[matmul]", "f32[2, 2]", "f64[2, 2]", "cast");
  REFUSED(DTypeError, cross_entropy(of({4, 7}), of({4})), "[cross_entropy]", "f32", "i64");
  REFUSED(DTypeError, cross_entropy(of({4, 7}, DType::i64), of({4}, DType::i64)), "[cross_entropy]", "logits");
  REFUSED(DTypeError, dropout(of({3}, DType::i64)), "[dropout]", "i64");
  REFUSED(DTypeError, randn({3}, {.dtype = DType::i64}), "[randn]", "i64");
  REFUSED(DTypeError, of({3}).data<double>(), "f32");
}

TEST_CASE("options out of range are ValueErrors that name the choices") {
  REFUSED(ValueError, gelu(of({3}), {.approximate = "fast"}), "[gelu]", "fast", "tanh");
  REFUSED(ValueError, cross_entropy(of({4, 7}), of({4}, DType::i64), {.reduction = "avg"}), "[cross_entropy]", "avg",
          "mean");
  REFUSED(ValueError, cross_entropy(of({4, 7}), of({4}, DType::i64), {.label_smoothing = 2}), "[cross_entropy]",
          "label_smoothing");
  REFUSED(ValueError, dropout(of({3}), -0.1), "[dropout]", "p is");
  REFUSED(ValueError, cat({}), "[cat]");
  REFUSED(ValueError, slice(of({3}), 0, 0, 3, 0), "[slice]", "step");
  REFUSED(ValueError, pad(of({3}), 0, -1, 0), "[pad]", "negative");
  REFUSED(ValueError, arange(0, 3, 0), "[arange]", "step");
  REFUSED(ValueError, randint(3, 3, {2}), "[randint]", "empty");
  REFUSED(ValueError, rope(of({2, 2}), {.base = 0}), "[rope]", "base");
  REFUSED(IndexError, select(of({3}), 0, 3), "[select]", "3");
  REFUSED(ValueError, zeros({2}) + zeros({2}, {.device = Device::Meta}), "[add]", "meta", "cpu");
}

TEST_CASE("plain beside distributed, and two meshes, are LayoutErrors on every rank that say what to do") {
  on_mesh({{"dp", 2}, {"tp", 2}}, [](dist::DeviceMesh mesh) {
    Tensor x = placed(of({2, 8}), mesh, "dp, -"), plain = of({8});
    REFUSED(LayoutError, x + plain, "[add]", "f32[2@dp, 8]", "f32[8]", "mesh(dp=2, tp=2)", "replicate(x, mesh)");
    REFUSED(LayoutError, matmul(plain, transpose(x, 0, 1)), "[matmul]", "replicate");
    dist::DeviceMesh other = mesh.at("dp", 0);
    REFUSED(LayoutError, x + dist::replicate(plain, other), "[add]", "two meshes", "redistribute");
    REFUSED(ShapeError, softmax(x, 2), "[softmax]", "dim 2", "f32[2@dp, 8]", "mesh(dp=2, tp=2)");
    REFUSED(ShapeError, matmul(x, dist::replicate(of({7, 3}), mesh)), "[matmul]", "f32[2@dp, 8]", "f32[7, 3]");
    REFUSED(LayoutError, dist::redistribute(plain, mesh.layout("-")), "[redistribute]", "f32[8]");
    REFUSED(LayoutError, dist::distribute(x, mesh.layout("...")), "[distribute]", "redistribute");
    REFUSED(LayoutError, dist::redistribute(x, mesh.layout("-")), "1", "2");
    REFUSED(LayoutError, mesh.layout("dp, dp"), "dp", "twice");
    REFUSED(LayoutError, mesh.layout("dq, -"), "dq", "dp", "tp");
    dist::ForbidImplicitRedistribution forbid;
    REFUSED(LayoutError, softmax(placed(of({2, 8}), mesh, "- , tp") + placed(of({2, 8}), mesh, "-, dp"), 1), "[add]",
            "forbidden");
  });
}

TEST_CASE("an error of metadata leaves the ranks in step") {
  on_mesh({{"x", 3}}, [](dist::DeviceMesh mesh) {
    Tensor x = placed(normal({5, 4}, 1), mesh, "x, -");
    for (int i = 0; i < 3; ++i) {
      message_of<ShapeError>([&] { matmul(x, x); });
      CHECK(near(sum(x), sum(normal({5, 4}, 1))));
    }
  });
}
