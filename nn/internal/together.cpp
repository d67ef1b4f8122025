#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>
#include <cleave/nn/internal/together.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <numeric>

#include <fmt/format.h>

namespace cleave::nn::detail {

namespace {

constexpr const char* kPhase = "checkpoint";

struct Report {
  int64_t kind = 0;  // 0: no error
  std::string text{};
};

// The kinds of error that a rank may meet alone and the others then throw too.
template <class... E>
struct Kinds {
  static Report report(const std::exception_ptr& error) {
    Report out;
    int64_t kind = 0;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      (void)((++kind, dynamic_cast<const E*>(&e) ? (out.kind = kind, true) : false) || ...);
      if (out.kind == 0) out.kind = kind + 1;
      out.text = e.what();
    }
    return out;
  }
  [[noreturn]] static void raise(int64_t kind, const std::string& text) {
    int64_t i = 0;
    (void)((++i == kind ? throw E(text) : false) || ...);
    throw Error(text);
  }
};
using Known = Kinds<FileError, ShapeError, DTypeError, LayoutError, ValueError, OutOfMemoryError>;

}  // namespace

Together::Together() : world_(dist::World::current()) {
  if (world_ && std::strcmp(world_->backend(), "simulated") == 0)
    throw ValueError("[checkpoint] a simulated world has no values to save or load");
  if (world_) rank_ = world_->rank(), size_ = world_->size();
}

std::vector<int64_t> Together::gather(const std::vector<int64_t>& mine, const std::vector<int64_t>& counts) const {
  if (!world_) return mine;
  dist::PhaseScope phase(kPhase);
  std::vector<int64_t> all(static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0})));
  world_->communicator().all_gather(mine.data(), all.data(), counts, DType::i64, Device::Cpu, kPhase);
  return all;
}

std::string Together::text_of_first(const std::string& mine) const {
  if (!world_) return mine;
  dist::PhaseScope phase(kPhase);
  auto length = static_cast<int64_t>(mine.size());
  world_->communicator().broadcast(&length, 1, DType::i64, 0, Device::Cpu, kPhase);
  std::string text = rank() == 0 ? mine : std::string(static_cast<size_t>(length), 0);
  world_->communicator().broadcast(text.data(), length, DType::u8, 0, Device::Cpu, kPhase);
  return text;
}

bool Together::all(bool holds) const {
  std::vector<int64_t> each = gather({holds}, std::vector<int64_t>(static_cast<size_t>(size()), 1));
  return std::all_of(each.begin(), each.end(), [](int64_t one) { return one != 0; });
}

void Together::agree(const std::exception_ptr& error) const {
  if (!world_) {
    if (error) std::rethrow_exception(error);
    return;
  }
  Report mine = error ? Known::report(error) : Report{};
  auto ranks = static_cast<size_t>(size());
  std::vector<int64_t> all =
      gather({mine.kind, static_cast<int64_t>(mine.text.size())}, std::vector<int64_t>(ranks, 2));
  size_t first = 0, failed = 0;
  std::vector<int64_t> lengths(ranks);
  for (size_t r = ranks; r-- > 0;) {
    lengths[r] = all[2 * r + 1];
    if (all[2 * r]) first = r, ++failed;
  }
  if (failed == 0) return;
  std::string texts(static_cast<size_t>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})), 0);
  {
    dist::PhaseScope phase(kPhase);
    world_->communicator().all_gather(mine.text.data(), texts.data(), lengths, DType::u8, Device::Cpu, kPhase);
  }
  auto begin =
      static_cast<size_t>(std::accumulate(lengths.begin(), lengths.begin() + static_cast<long>(first), int64_t{0}));
  std::string text = texts.substr(begin, static_cast<size_t>(lengths[first]));
  Known::raise(all[2 * first], failed == ranks ? text : fmt::format("rank {}: {}", first, text));
}

void Together::run(const std::function<void()>& f) const {
  std::exception_ptr error;
  try {
    f();
  } catch (const CommError&) {  // the others learn of these by themselves
    throw;
  } catch (const Interrupted&) { throw; } catch (const std::exception&) {
    error = std::current_exception();
  }
  agree(error);
}

}  // namespace cleave::nn::detail
