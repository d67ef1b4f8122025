// Dtypes of results: promotion of tensors, numbers beside tensors, and what each family returns.
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

namespace {
Tensor of(DType dtype) { return ones({2}, {.dtype = dtype}); }
}  // namespace

TEST_CASE("tensors promote to the larger category, then the larger size, whichever side they stand on") {
  using enum DType;
  const std::array<DType, 3> table[] = {{f64, f32, f64},   {f32, bf16, f32},      {bf16, f16, f32}, {bf16, bf16, bf16},
                                        {f16, i64, f16},   {bf16, boolean, bf16}, {i64, i32, i64},  {i32, u8, i32},
                                        {u8, boolean, u8}, {i64, boolean, i64},   {u8, u8, u8},     {f32, i64, f32}};
  for (auto [a, b, result] : table) {
    CHECK(promote(a, b) == result);
    CHECK((of(a) + of(b)).dtype() == result);
    CHECK((of(b) * of(a)).dtype() == result);
    CHECK(where(of(boolean), of(a), of(b)).dtype() == result);
    CHECK(cat({of(a), of(b)}).dtype() == result);
  }
}

TEST_CASE("a number takes the tensor's dtype, except that a fraction makes integers f32") {
  using enum DType;
  for (DType t : {f64, f32, bf16, f16}) {
    CHECK((of(t) + 1).dtype() == t);
    CHECK((of(t) * 1.5).dtype() == t);
    CHECK((2 - of(t)).dtype() == t);
    CHECK((1.0 / of(t)).dtype() == t);
  }
  for (DType t : {i64, i32, u8}) {
    CHECK((of(t) + 1).dtype() == t);
    CHECK((of(t) * 2).dtype() == t);
    CHECK((of(t) + 1.5).dtype() == f32);
    CHECK(item<float>(sum(of(t) * 1.5)) == 3);
    CHECK((of(t) / of(t)).dtype() == f32);
    CHECK((of(t) / 2).dtype() == f32);
    CHECK(item<float>(sum(of(t) / 2)) == 1);
    CHECK((1 / of(t)).dtype() == f32);
  }
}

TEST_CASE("comparisons give bool and compare integers with fractions as fractions") {
  Tensor x = tensor<int64_t>({0, 1, 2});
  CHECK(lt(x, 1).dtype() == DType::boolean);
  CHECK(to_vector<bool>(lt(x, 0.5)) == std::vector<bool>{true, false, false});
  CHECK(to_vector<bool>(ge(x, 1.5)) == std::vector<bool>{false, false, true});
  CHECK(to_vector<bool>(eq(x, tensor<float>({0, 1.5, 2}))) == std::vector<bool>{true, false, true});
  CHECK(to_vector<bool>(logical_and(x, tensor<bool>({true, true, false}))) == std::vector<bool>{false, true, false});
}

TEST_CASE("families that need fractions take integers as f32; sums of integers and bools are i64") {
  Tensor x = tensor<int32_t>({1, 4, 9});
  CHECK(sqrt(x).dtype() == DType::f32);
  CHECK(to_vector<float>(sqrt(x)) == std::vector<float>{1, 2, 3});
  CHECK(sum(x).dtype() == DType::i64);
  CHECK(item<int64_t>(sum(ones({300}, {.dtype = DType::boolean}))) == 300);
  CHECK(item<int64_t>(sum(full({300}, 200, {.dtype = DType::u8}))) == 60000);
  CHECK(amax(x).dtype() == DType::i32);
  CHECK(argmax(x, 0).dtype() == DType::i64);
  CHECK(abs(tensor<int32_t>({-3})).dtype() == DType::i32);
}

TEST_CASE("casts truncate towards zero, and bool is whether there is something") {
  Tensor x = tensor<double>({-1.7, -0.2, 0.0, 0.9, 2.5});
  CHECK(to_vector<int64_t>(cast(x, DType::i64)) == std::vector<int64_t>{-1, 0, 0, 0, 2});
  CHECK(to_vector<bool>(cast(x, DType::boolean)) == std::vector<bool>{true, true, false, true, true});
  CHECK(cast(x, DType::f64).impl() == x.impl());
  Tensor w = tensor<double>({1, 2}).set_requires_grad();
  sum(cast(w, DType::bf16)).backward();
  CHECK(w.grad().dtype() == DType::f64);
}

TEST_CASE("integer arithmetic wraps and divides as documented") {
  CHECK(to_vector<uint8_t>(tensor<uint8_t>({250}) + 10) == std::vector<uint8_t>{4});
  CHECK(to_vector<int64_t>(floor_divide(tensor<int64_t>({-7, 7}), tensor<int64_t>({2, -2}))) ==
        std::vector<int64_t>{-4, -4});
  CHECK(to_vector<int64_t>(remainder(tensor<int64_t>({-7, 7}), tensor<int64_t>({3, -3}))) ==
        std::vector<int64_t>{2, -2});
  CHECK(to_vector<int64_t>(floor_divide(tensor<int64_t>({7}), tensor<int64_t>({0}))) == std::vector<int64_t>{0});
}
