// The user's check of gradients: what it passes, what it names, what it refuses.
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("gradcheck passes right gradients of any output and leaves x as it was") {
  Tensor x = weight(normal({3, 4}, 1)), w = normal({4, 5}, 2);
  sum(x).backward();
  Tensor before = clone(x.detach()), gradient = clone(x.grad());
  CHECK(gradcheck([&](const Tensor& v) { return logsumexp(matmul(v, w), -1); }, x));
  CHECK(gradcheck([](const Tensor& v) { return softmax(gelu(v), 0) * v; }, x));
  CHECK(gradcheck([](const Tensor& v) { return sum(square(v)); }, transpose(x.detach(), 0, 1)));
  CHECK(equal(x.detach(), before));
  CHECK(equal(x.grad(), gradient));
}

TEST_CASE("gradcheck names the first element of a wrong gradient, with both numbers") {
  Tensor x = f64({0, 0, 3}, {3});  // v * detach(v) has the gradient v on the tape and 2 v in truth
  std::string message = message_of<GradError>([&] { gradcheck([](const Tensor& v) { return v * v.detach(); }, x); });
  CHECK(contains(message, {"[gradcheck]", "element 2"}));
}

TEST_CASE("gradcheck refuses other dtypes and results that do not depend on x") {
  CHECK(contains(message_of<DTypeError>([] { gradcheck([](const Tensor& v) { return v; }, ones({2})); }),
                 {"[gradcheck]", "f32", "f64"}));
  CHECK(contains(message_of<GradError>([] { gradcheck([](const Tensor& v) { return v.detach(); }, normal({2}, 1)); }),
                 {"does not depend"}));
}
