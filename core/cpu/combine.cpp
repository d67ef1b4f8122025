#include <cleave/core/cpu/combine.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/combine.h>
#include <cleave/core/parallel.h>

namespace cleave::cpu {

void combine(DType dtype, Combine op, std::span<const void* const> in, std::span<void* const> out, int64_t begin,
             int64_t end) {
  constexpr int64_t kGrain = int64_t{1} << 18;  // elements worth a thread
  auto run = CLEAVE_PICK(combine_loops).of[static_cast<int>(dtype)][static_cast<int>(op)];
  parallel_for(end - begin, kGrain, [&](int64_t from, int64_t to) {
    run(in.data(), static_cast<int>(in.size()), out.data(), static_cast<int>(out.size()), begin + from, begin + to);
  });
}

}  // namespace cleave::cpu
