// How parameters and buffers start: small values that are kept until the elements are made.
#pragma once
#include <cstdint>

#include <cleave/core/shape.h>

namespace cleave::nn {

/// A rule for initial elements. Random ones depend on (seed, call, global index) alone: the call is drawn when the
/// parameter is constructed, so deferral and layouts change no element.
struct Init {
  enum class Kind : uint8_t { constant, uniform, normal, kaiming_uniform, xavier_uniform, xavier_normal };
  Kind kind = Kind::constant;
  double a = 0, b = 0;

  bool random() const { return kind != Kind::constant; }
  /// constant, uniform or normal: what the others are for a weight of this shape, [out, in...].
  Init resolve(const Shape& shape) const;
};

namespace init {

inline Init constant(double value) { return {Init::Kind::constant, value, 0}; }
inline Init zeros() { return constant(0); }
inline Init ones() { return constant(1); }
/// In [low, high).
inline Init uniform(double low = 0, double high = 1) { return {Init::Kind::uniform, low, high}; }
inline Init normal(double mean = 0, double std = 1) { return {Init::Kind::normal, mean, std}; }
/// U(-b, b), b = sqrt(6 / ((1 + a^2) fan_in)) (He et al. 2015); the fan of [out, in...] is the product of the last
/// dims. PyTorch's Linear has a = sqrt(5): b = 1 / sqrt(fan_in).
inline Init kaiming_uniform(double a = 0) { return {Init::Kind::kaiming_uniform, a, 0}; }
/// U(-b, b), b = gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010); fan_out is the first size.
inline Init xavier_uniform(double gain = 1) { return {Init::Kind::xavier_uniform, gain, 0}; }
/// N(0, s^2), s = gain sqrt(2 / (fan_in + fan_out)).
inline Init xavier_normal(double gain = 1) { return {Init::Kind::xavier_normal, gain, 0}; }

}  // namespace init
}  // namespace cleave::nn
