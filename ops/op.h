// OpDef: an operation as a record of its rules, and the one dispatcher that runs it.
#pragma once
#include <array>
#include <span>
#include <string>
#include <vector>

#include <cleave/autograd/node.h>
#include <cleave/core/error.h>
#include <cleave/core/kernel.h>
#include <cleave/core/primitives.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/ops/rule.h>

namespace cleave {

struct OpDef;
/// Outputs of one op, at most.
inline constexpr int64_t kMaxOutputs = 8;
using Inputs = std::span<const Tensor* const>;

/// dtype and global shape of one output.
struct OutputType {
  DType dtype = DType::f32;
  Shape shape;
};

struct InferCall {
  const OpDef& op;
  Inputs in;
  Attributes attributes;
  const Shape& shape(size_t i) const { return in[i]->impl()->global; }
  DType dtype(size_t i) const { return in[i]->impl()->view.dtype; }
  bool has(size_t i) const { return i < in.size() && in[i]->defined(); }
};

/// Rewrites attributes that speak of global sizes or offsets for this rank's blocks. Shapes and layouts are those the
/// op runs with; on plain tensors layouts are null and the block is the whole.
struct LocalizeCall {
  Inputs in;
  std::span<const OutputType> out;
  std::span<const dist::LayoutData*const> in_layouts, out_layouts;
  /// The box of input `i` (output `i`) that this rank holds.
  Shape in_offset(size_t i) const;
  Shape out_offset(size_t i) const;
};

/// What the tape knows of an input, saved or not. An absent input has the empty shape.
struct BackwardInput {
  Shape shape;  ///< of this rank's block
  Shape global;
  DType dtype = DType::f32;
  DType gradient_dtype = DType::f32;  ///< f32 for a leaf of 16 bits, whose gradients are summed so; else as `dtype`
  const dist::LayoutData* layout = nullptr;
};

/// The local computation's gradient. All tensors are this rank's blocks, plain and off the tape.
struct BackwardCall {
  const OpDef& op;
  Attributes attributes;            ///< as localized
  std::span<const Tensor> inputs;   ///< undefined unless saved; of what nobody else holds see `gradient_room`
  std::span<const Tensor> outputs;  ///< undefined unless saved
  std::span<const Tensor> grads;    ///< by output; undefined: zero
  std::span<const BackwardInput> types;
  std::span<const bool> needs;  ///< by input
  const Shape& input_shape(size_t i) const { return types[i].shape; }
  const Shape& input_global(size_t i) const { return types[i].global; }
  DType input_dtype(size_t i) const { return types[i].dtype; }
  /// In which the gradient of input i is summed: returned so it is not rounded first. `input_dtype` is right as well.
  DType gradient_dtype(size_t i) const { return types[i].gradient_dtype; }
};

/// Bit masks of the inputs and outputs that the tape keeps.
struct Saves {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
};

/// Work of one call, from local shapes.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// How a sample's input is filled.
enum class Fill : uint8_t {
  normal,    ///< floating, mixed signs
  positive,  ///< floating, in [0.5, 2]
  distinct,  ///< floating, no two equal, so that extrema are unique
  index,     ///< i64 in [0, high)
  boolean    ///< random bits
};
struct SampleInput {
  Shape shape;
  Fill fill = Fill::normal;
  int64_t high = 0;            ///< of Fill::index
  bool differentiable = true;  ///< floating inputs only
  bool absent = false;         ///< an optional input left out
};
/// One call of an op for the generic test harness.
struct Sample {
  std::vector<SampleInput> inputs;
  std::vector<std::byte> attributes;
  bool has_gradient = true;
  bool integers = false;  ///< also defined for integer and bool inputs
  double tolerance = 0;   ///< relative, f64; 0: the harness's default
};
template <class A>
std::vector<std::byte> sample_attributes(const A& a) {
  auto* p = reinterpret_cast<const std::byte*>(&a);
  return {p, p + sizeof(A)};
}

/// In which dtype an op takes its floating inputs under autocast (ops/autocast.h).
enum class Precision : uint8_t {
  keeps,  ///< as they come
  low,    ///< 16 bits: products, whose sums are kept in f32
  f32,    ///< at least f32: exponentials, logarithms, sums, norms, losses
  widest  ///< the widest among them: element-wise functions of several, and joins
};

/// An operation. Fields stand in the order in which they are read; adding an op is its record, its public function in
/// the family's header, and a line in ops/registry.cpp.
struct OpDef {
  /// Prefix of errors, label in traces.
  const char* name;
  /// Output types, or a precise error; works without data.
  void (*infer)(const InferCall& call, std::span<OutputType> out);
  LayoutRule layout;
  /// Number of leading attribute bytes that `infer` and `layout` read: the rule cache's key. Never numbers or seeds.
  size_t key_bytes = 0;
  /// Optional; gets a copy of the attributes to rewrite.
  void (*localize)(const LocalizeCall& call, void* attributes) = nullptr;
  Kernel kernel = {};
  /// Instead of a kernel: the block of output number `output` as a view of input 0's, given its local shape. False: not
  /// possible without a copy; then it is called again with a dense input.
  bool (*view)(const View& x, size_t output, const Shape& out, const Attributes& attributes, View& result) = nullptr;
  /// Optional: the memory order of an output's block, dims from major to minor; dense row-major otherwise.
  Dims (*memory_order)(size_t output) = nullptr;
  /// Gradients by input, left undefined where not needed. Null: not differentiable.
  void (*backward)(const BackwardCall& call, std::span<Tensor> gradients) = nullptr;
  Saves saves = {};
  /// How to compute it when a whole letter stays split: other ops on the distributed inputs, taped as such.
  void (*decompose)(Inputs in, const Attributes& attributes, std::span<Tensor> out) = nullptr;
  Cost (*cost)(std::span<const View* const> in, std::span<const View* const> out,
               const Attributes& attributes) = nullptr;
  /// Optional: of a kernel that `backward` launches under the op's name, from its inputs and outputs. A kernel without
  /// a record of its work counts the bytes that it reads and writes.
  Cost (*backward_cost)(std::span<const View* const> in, std::span<const View* const> out,
                        const Attributes& attributes) = nullptr;
  std::vector<Sample> (*samples)() = nullptr;
  int outputs = 1;
  /// Outputs that carry gradients (bit mask).
  uint32_t differentiable_outputs = ~0u;
  Precision precision = Precision::keeps;
};

/// Runs `op`: infer, (for distributed inputs: choose the row of the rule, redistribute, localize), kernel, tape. An
/// undefined tensor is an absent optional input. Throws what `infer` throws; LayoutError for a mix of plain and
/// distributed tensors or of meshes; GradError never.
void dispatch(const OpDef& op, Inputs in, Attributes attributes, std::span<Tensor> out);

/// `dispatch` for one output.
template <class... T>
Tensor apply(const OpDef& op, Attributes attributes, const T&... in) {
  const Tensor* inputs[] = {&static_cast<const Tensor&>(in)...};
  Tensor out;
  dispatch(op, inputs, attributes, {&out, 1});
  return out;
}
Tensor apply_list(const OpDef& op, Attributes attributes, std::span<const Tensor> in);

/// A fresh plain block of x's shape that lies in memory as x does, so that what follows need not turn it.
Tensor make_like(const Tensor& x, DType dtype);
/// Room for the gradient of a saved tensor x in a backward function that reads x, at each position, before it writes
/// there: x itself where nobody else will read it, else a fresh block.
Tensor gradient_room(const Tensor& x, DType dtype);
/// Gives a dense block that nothing uses yet the strides of dims that lie in `order`, major to minor.
void lay_out(View& view, const Dims& order);
/// Runs a kernel on plain blocks outside the dispatcher, for backward functions: allocates an output of this type.
Tensor run_kernel(const Kernel& kernel, const char* op, std::initializer_list<const Tensor*> in, const Shape& shape,
                  DType dtype, Attributes attributes = {});

/// "[softmax] " and the message.
std::string op_message(const char* op, const std::string& text);
/// dim in [0, rank), negative counted from the end; ShapeError "[op] dim 3 is out of range for f32[2, 8]" otherwise.
int64_t wrap_dim(const char* op, int64_t dim, const TensorType& type);
/// Every dim wrapped and sorted, each once (ShapeError); all of them for `{}`.
Dims wrap_dims(const char* op, const Dims& dims, const TensorType& type);
/// Throws DTypeError unless x is floating.
void require_floating(const char* op, const Tensor& x, const char* what = "input");
/// The broadcast of two shapes; ShapeError naming both types.
Shape broadcast_shapes(const char* op, const Tensor& a, const Tensor& b);

}  // namespace cleave
