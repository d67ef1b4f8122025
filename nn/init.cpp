#include <cleave/core/error.h>
#include <cleave/nn/init.h>

#include <cmath>

namespace cleave::nn {

namespace {

struct Fans {
  double in, out;
};

Fans fans(const Shape& shape) {
  if (shape.rank() < 2)
    throw ShapeError("[init] " + to_string(shape) +
                     " has no fan-in; this initializer needs a weight [out, in...] of at least 2 dims");
  double in = 1;
  for (int d = 1; d < shape.rank(); ++d) in *= static_cast<double>(shape[d]);
  // A weight with further dims (a convolution's) counts them on both sides.
  double field = in / std::max<double>(1.0, static_cast<double>(shape[1]));
  return {in, static_cast<double>(shape[0]) * field};
}

// sqrt(x / n), and 0 for the weights of an empty layer, which have no elements.
double root(double x, double n) { return n > 0 ? std::sqrt(x / n) : 0.0; }

}  // namespace

Init Init::resolve(const Shape& shape) const {
  switch (kind) {
    case Kind::kaiming_uniform: {
      double bound = root(6.0 / (1 + a * a), fans(shape).in);
      return init::uniform(-bound, bound);
    }
    case Kind::xavier_uniform: {
      Fans f = fans(shape);
      double bound = a * root(6.0, f.in + f.out);
      return init::uniform(-bound, bound);
    }
    case Kind::xavier_normal: {
      Fans f = fans(shape);
      return init::normal(0, a * root(2.0, f.in + f.out));
    }
    case Kind::constant:
    case Kind::uniform:
    case Kind::normal:
      break;
  }
  return *this;
}

}  // namespace cleave::nn
