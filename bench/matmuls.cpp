// The bound of a training step: its matrix products alone, forward and backward, straight on oneDNN.
//   bench_matmuls --workload W1 [--dtype f32] [--passes 5]
// bf16: the faster of products in bf16 and in f32, which differ by what the processor has.
#include <cleave/core/parallel.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "measure.h"
#include "workload.h"

namespace {

using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;

// `count` products [m, k] x [k, n], one after the other; transposed operands are read as they lie.
struct Product {
  int64_t count, m, k, n;
  bool transpose_a = false, transpose_b = false;
};

// y = x w^T, dx = dy w, dw = dy^T x for x [rows, in] and w [out, in].
void add_linear(std::vector<Product>& list, int64_t rows, int64_t in, int64_t out) {
  list.push_back({1, rows, in, out, false, true});
  list.push_back({1, rows, out, in});
  list.push_back({1, out, rows, in, true, false});
}

// Scores and values of every head forward; the gradients of both operands of each backward. A causal mask leaves half
// of the keys.
void add_attention(std::vector<Product>& list, int64_t heads, int64_t seq, int64_t dim) {
  int64_t seen = std::max<int64_t>(1, seq / 2);
  list.push_back({heads, seq, dim, seen, false, true});
  list.push_back({heads, seq, seen, dim});
  list.push_back({heads, seen, seq, dim, true, false});
  list.push_back({heads, seq, dim, seen, false, true});
  list.push_back({heads, seq, seen, dim});
  list.push_back({heads, seen, seq, dim, true, false});
}

std::vector<Product> products_of(const nlohmann::json& w) {
  int64_t rows = w["batch"].get<int64_t>() * w["seq"].get<int64_t>(), dim = w["dim"], heads = w["heads"];
  std::vector<Product> list;
  for (int64_t layer = 0; layer < w["layers"]; ++layer) {
    add_linear(list, rows, dim, 3 * dim);
    add_attention(list, w["batch"].get<int64_t>() * heads, w["seq"], dim / heads);
    add_linear(list, rows, dim, dim);
    add_linear(list, rows, dim, 4 * dim);
    add_linear(list, rows, 4 * dim, dim);
  }
  add_linear(list, rows, dim, w["vocab"]);
  return list;
}

// Operands are reused from product to product: one buffer for each place is enough.
struct Buffers {
  std::vector<float> a, b, c;
  explicit Buffers(const std::vector<Product>& list) {
    size_t na = 0, nb = 0, nc = 0;
    for (const Product& p : list) {
      na = std::max(na, static_cast<size_t>(p.m * p.k));
      nb = std::max(nb, static_cast<size_t>(p.k * p.n));
      nc = std::max(nc, static_cast<size_t>(p.m * p.n));
    }
    a.assign(na, 1.0f), b.assign(nb, 1.0f), c.assign(nc, 0.0f);
  }
};

void run_f32(const Product& p, Buffers& x) {
  for (int64_t i = 0; i < p.count; ++i)
    dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1.0f, x.a.data(),
               p.transpose_a ? p.m : p.k, x.b.data(), p.transpose_b ? p.k : p.n, 0.0f, x.c.data(), p.n);
}

class Bf16Product {
 public:
  Bf16Product(const Product& p, Buffers& x, const dnnl::engine& engine) : count_(p.count) {
    auto desc = [](int64_t rows, int64_t columns, bool transposed) {
      return dnnl::memory::desc(Dims{rows, columns}, Type::bf16, transposed ? Dims{1, rows} : Dims{columns, 1});
    };
    auto a = desc(p.m, p.k, p.transpose_a), b = desc(p.k, p.n, p.transpose_b), c = desc(p.m, p.n, false);
    matmul_ = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
    arguments_ = {{DNNL_ARG_SRC, dnnl::memory(a, engine, x.a.data())},
                  {DNNL_ARG_WEIGHTS, dnnl::memory(b, engine, x.b.data())},
                  {DNNL_ARG_DST, dnnl::memory(c, engine, x.c.data())}};
  }
  void run(dnnl::stream& stream) {
    for (int64_t i = 0; i < count_; ++i) matmul_.execute(stream, arguments_);
  }

 private:
  int64_t count_;
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

double bf16_seconds(const std::vector<Product>& list, Buffers& buffers, int passes) {
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  std::vector<Bf16Product> all;
  for (const Product& p : list) all.emplace_back(p, buffers, engine);
  return bench::least(passes, [&] {
    for (Bf16Product& p : all) p.run(stream);
    stream.wait();
  });
}

}  // namespace

int main(int argc, char** argv) {
  bench::Options o(argc, argv);
  cleave::set_num_threads(o.number("threads", 1));  // OpenMP's number, which is oneDNN's
  std::string name = o.text("workload", "W1"), dtype = o.text("dtype", "f32");
  auto list = products_of(bench::workload("gpt", name));
  Buffers buffers(list);
  int passes = o.number("passes", 5);
  double seconds = bench::least(passes, [&] {
    for (const Product& p : list) run_f32(p, buffers);
  });
  if (dtype == "bf16") seconds = std::min(seconds, bf16_seconds(list, buffers, passes));
  bench::report("matmuls", name + " " + dtype, seconds * 1e3, "ms", "oneDNN");
}
