// Checks of every collective against plain loops, for any world: run by the thread tests and under mpirun.
#pragma once
#include <doctest/doctest.h>

#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace cleave::test {

using namespace dist;

/// What rank r holds at i: small integers of mixed sign, exact in every dtype; 0 or 1 where only these are.
inline int sample(DType t, int rank, int64_t i) {
  int v = static_cast<int>((i * 7 + rank * 5 + 3) % 11) - 5;
  return t == DType::boolean ? (v & 1) : t == DType::u8 ? v + 5 : v;
}

template <class T>
std::vector<T> samples(int rank, int64_t n, int64_t offset = 0) {
  std::vector<T> v;
  for (int64_t i = 0; i < n; ++i)
    v.push_back(static_cast<T>(static_cast<float>(sample(dtype_of<T>(), rank, offset + i))));
  return v;
}

/// Where ranks keep their buffers: each its own, in memory that all reach, or some so and some so.
enum class Where { own, shared, mixed };

/// A buffer that remembers its dtype; elements read and written as float.
struct Buffer {
  Buffer(DType t, int64_t n) : dtype(t), count(n), own(static_cast<size_t>(n * size_of(t)) + 1, 0x5a) {
    bytes = own.data();
  }
  Buffer(Communicator& comm, Where where, DType t, int64_t n) : Buffer(t, n) {
    if (where == Where::own || (where == Where::mixed && comm.rank() % 2)) return;
    memory = comm.shared_buffer(static_cast<int64_t>(own.size()));
    bytes = static_cast<unsigned char*>(memory.get());
    std::memset(bytes, 0x5a, own.size());
  }
  void* data() { return bytes; }
  double get(int64_t i) const {
    return visit_dtype(dtype, [&](auto zero) {
      decltype(zero) x;
      std::memcpy(&x, bytes + i * size_of(dtype), sizeof x);
      if constexpr (std::is_same_v<decltype(zero), Half> || std::is_same_v<decltype(zero), BFloat16>)
        return double{float(x)};
      else
        return static_cast<double>(x);
    });
  }
  void set(int64_t i, double v) {
    visit_dtype(dtype, [&](auto zero) {
      using T = decltype(zero);
      T x;
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
        x = T(static_cast<float>(v));
      else
        x = static_cast<T>(v);
      std::memcpy(bytes + i * size_of(dtype), &x, sizeof x);
    });
  }
  void fill(int rank, int64_t offset = 0) {
    for (int64_t i = 0; i < count; ++i) set(i, sample(dtype, rank, offset + i));
  }
  DType dtype;
  int64_t count;
  std::vector<unsigned char> own;
  std::shared_ptr<void> memory;
  unsigned char* bytes;
};

inline double reduced(DType t, ReduceOp op, int ranks, int64_t i) {
  double v = sample(t, 0, i);
  for (int r = 1; r < ranks; ++r) {
    double x = sample(t, r, i);
    v = op == ReduceOp::sum ? v + x : op == ReduceOp::max ? std::max(v, x) : std::min(v, x);
  }
  return t == DType::boolean ? v != 0 : v;
}

inline int differing(const Buffer& b, int64_t n, const std::function<double(int64_t)>& expected) {
  int wrong = 0;
  for (int64_t i = 0; i < n; ++i) wrong += b.get(i) != expected(i);
  return wrong;
}

constexpr DType kAll[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                          DType::i64, DType::i32, DType::u8,   DType::boolean};

/// Blocks of unequal sizes, some empty: rank r has (3 r + scale) % 5 * scale.
inline std::vector<int64_t> uneven(int ranks, int64_t scale) {
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back((3 * r + scale) % 5 * scale);
  return counts;
}
inline int64_t offset_of(const std::vector<int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

inline void check_reductions(Communicator& comm, DType t, ReduceOp op, int64_t scale, Where where = Where::own) {
  CAPTURE(to_string(t));
  CAPTURE(scale);
  CAPTURE(static_cast<int>(where));
  int n = comm.size(), me = comm.rank();
  Buffer x(comm, where, t, 3 * scale);
  x.fill(me);
  comm.all_reduce(x.data(), x.count, t, op);
  CHECK(differing(x, x.count, [&](int64_t i) { return reduced(t, op, n, i); }) == 0);

  auto counts = uneven(n, scale);
  int64_t total = offset_of(counts, n), begin = offset_of(counts, me);
  Buffer in(comm, where, t, total), out(t, counts[static_cast<size_t>(me)]);
  in.fill(me);
  comm.reduce_scatter(in.data(), out.data(), counts, t, op);
  CHECK(differing(out, out.count, [&](int64_t i) { return reduced(t, op, n, begin + i); }) == 0);
  CHECK(differing(in, total, [&](int64_t i) { return sample(t, me, i); }) == 0);
}

inline void check_moves(Communicator& comm, DType t, int64_t scale, Where where = Where::own) {
  CAPTURE(to_string(t));
  CAPTURE(scale);
  CAPTURE(static_cast<int>(where));
  int n = comm.size(), me = comm.rank();
  auto counts = uneven(n, scale);
  int64_t total = offset_of(counts, n);
  Buffer mine(comm, where, t, counts[static_cast<size_t>(me)]), all(t, total);
  mine.fill(me);
  comm.all_gather(mine.data(), all.data(), counts, t);
  int wrong = 0;
  for (int r = 0; r < n; ++r)
    for (int64_t i = 0; i < counts[static_cast<size_t>(r)]; ++i)
      wrong += all.get(offset_of(counts, r) + i) != sample(t, r, i);
  CHECK(wrong == 0);

  for (int root = 0; root < n; ++root) {
    Buffer b(comm, where, t, scale);
    b.fill(me + 1);
    comm.broadcast(b.data(), scale, t, root);
    CHECK(differing(b, scale, [&](int64_t i) { return sample(t, root + 1, i); }) == 0);
  }

  auto between = [&](int from, int to) { return (from + 2 * to) % 3 * scale; };  // 0 for some pairs
  std::vector<int64_t> send, recv;
  for (int r = 0; r < n; ++r) {
    send.push_back(between(me, r));
    recv.push_back(between(r, me));
  }
  Buffer out(comm, where, t, offset_of(send, n)), in(comm, where, t, offset_of(recv, n));
  for (int r = 0; r < n; ++r)
    for (int64_t i = 0; i < send[static_cast<size_t>(r)]; ++i) out.set(offset_of(send, r) + i, sample(t, me, i + r));
  comm.all_to_all(out.data(), send, in.data(), recv, t);
  wrong = 0;
  for (int r = 0; r < n; ++r)
    for (int64_t i = 0; i < recv[static_cast<size_t>(r)]; ++i)
      wrong += in.get(offset_of(recv, r) + i) != sample(t, r, i + me);
  CHECK(wrong == 0);
}

inline void check_point_to_point(Communicator& comm) {
  int n = comm.size(), me = comm.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
  std::vector<std::vector<float>> out, in;
  std::vector<std::unique_ptr<Pending>> sending, receiving;
  for (int64_t count : {1, 5, 70000}) {
    out.push_back(samples<float>(me, count));
    in.emplace_back(out.back().size());
  }
  for (size_t k = 0; k < out.size(); ++k) {
    auto count = static_cast<int64_t>(out[k].size());
    sending.push_back(comm.start(
        {.kind = CollectiveKind::send_recv, .send = out[k].data(), .recv = nullptr, .count = count, .peer = next}));
    receiving.push_back(comm.start(
        {.kind = CollectiveKind::send_recv, .send = nullptr, .recv = in[k].data(), .count = count, .peer = before}));
  }
  for (size_t k = out.size(); k-- > 0;) receiving[k]->wait();
  for (auto& p : sending) p->wait();
  for (const auto& v : in) CHECK(v == samples<float>(before, static_cast<int64_t>(v.size())));

  if (n > 1 && me < 2) {
    double token = me;
    if (me == 0)
      comm.send(&token, 1, DType::f64, 1), comm.send(nullptr, 0, DType::f64, 1);
    else
      comm.recv(&token, 1, DType::f64, 0), comm.recv(nullptr, 0, DType::f64, 0);
    CHECK(token == 0);
    float wrong_size[2];
    if (me == 0)
      comm.send(&token, 1, DType::f32, 1);
    else
      CHECK_THROWS_AS(comm.recv(wrong_size, 2, DType::f32, 0), CommError);
  }
}

/// Sums of numbers that round: every rank gets the bits of the sum in rank order.
inline void check_same_bits(Communicator& comm, int64_t count, Where where = Where::own) {
  int n = comm.size();
  auto value = [](int r, int64_t i) {
    return std::sin(static_cast<float>(i * 37 + r * 1001)) * std::exp2(static_cast<float>((i + 3 * r) % 20));
  };
  Buffer buffer(comm, where, DType::f32, count);
  auto* x = static_cast<float*>(buffer.data());
  for (int64_t i = 0; i < count; ++i) x[i] = value(comm.rank(), i);
  comm.all_reduce(x, count, DType::f32);
  int wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    float expected = value(0, i);
    for (int r = 1; r < n; ++r) expected += value(r, i);
    wrong += std::memcmp(&expected, &x[i], 4) != 0;
  }
  CHECK(wrong == 0);
}

/// bf16 and f16 are summed in f32 and rounded once: 1 + n tiny terms that a 16-bit sum would lose one by one.
inline void check_half_sums(Communicator& comm) {
  for (DType t : {DType::bf16, DType::f16}) {
    double tiny =
        t == DType::bf16 ? 0x1p-8 : 0x1p-11;  // half a unit in the last place of 1: ties to even, is lost alone
    Buffer x(t, 1);
    x.set(0, comm.rank() == 0 ? 1.0 : tiny);
    comm.all_reduce(x.data(), 1, t);
    Buffer expected(t, 1);
    expected.set(0, 1.0 + (comm.size() - 1) * tiny);
    CHECK(x.get(0) == expected.get(0));
    if (comm.size() >= 3) CHECK(x.get(0) > 1.0);
  }
}

inline void check_extremes(Communicator& comm) {
  int n = comm.size(), me = comm.rank();
  float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (int bad = 0; bad < n; ++bad) {
    float x[] = {me == bad ? nan : static_cast<float>(me), me == bad ? -inf : 1.0f};
    float y[] = {x[0], x[1]};
    comm.all_reduce(x, 2, DType::f32, ReduceOp::max);
    comm.all_reduce(y, 2, DType::f32, ReduceOp::min);
    CHECK(std::isnan(x[0]));
    CHECK(std::isnan(y[0]));
    CHECK(x[1] == (n == 1 ? -inf : 1.0f));
    CHECK(y[1] == -inf);
  }
  int64_t big = std::numeric_limits<int64_t>::max() / 64 + me;  // exact where a double would round
  comm.all_reduce(&big, 1, DType::i64);
  int64_t expected = 0;
  for (int r = 0; r < n; ++r) expected += std::numeric_limits<int64_t>::max() / 64 + r;
  CHECK(big == expected);
  unsigned char many = 200;
  comm.all_reduce(&many, 1, DType::u8);
  CHECK(many == static_cast<unsigned char>(200 * n));
}

/// Every collective, on buffers from nothing to several chunks of any implementation.
inline void check_sizes(Communicator& comm, Where where) {
  for (int64_t scale : {0, 1, 3, 600, 5000, 40001}) {
    for (DType t : kAll) {
      bool large = scale > 600;
      if (large && t != DType::f32 && t != DType::u8 && t != DType::bf16) continue;
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min})
        if (!large || op == ReduceOp::sum) check_reductions(comm, t, op, scale, where);
      check_moves(comm, t, scale, where);
    }
  }
  for (int64_t count : {1, 7, 2000, 3000, 100003}) check_same_bits(comm, count, where);
}

/// Everything, on one communicator.
inline void check_collectives(Communicator& comm) {
  for (Where where : {Where::own, Where::shared, Where::mixed}) check_sizes(comm, where);
  check_half_sums(comm);
  check_extremes(comm);
  check_point_to_point(comm);
  comm.barrier();
}

/// Two collectives under way on two communicators, waited for in the other order on odd ranks, several on one of them.
inline void check_overlap(Communicator& a, Communicator& b) {
  for (int64_t count : {4, 30000}) {
    std::vector<std::vector<float>> x, y;
    std::vector<std::unique_ptr<Pending>> first, second;
    for (int k = 0; k < 6; ++k) {
      x.push_back(samples<float>(a.rank() + k, count));
      y.push_back(samples<float>(b.rank() + 2 * k, count));
    }
    for (size_t k = 0; k < x.size(); ++k) {
      first.push_back(
          a.start({.kind = CollectiveKind::all_reduce, .send = nullptr, .recv = x[k].data(), .count = count}));
      second.push_back(
          b.start({.kind = CollectiveKind::all_reduce, .send = nullptr, .recv = y[k].data(), .count = count}));
    }
    float blocking = 1;
    a.all_reduce(&blocking, 1, DType::f32);  // while all of them are under way
    CHECK(blocking == a.size());
    bool odd = World::current()->rank() % 2;
    for (auto& p : odd ? second : first) p->wait();
    for (size_t k = x.size(); k-- > 0;) (odd ? first : second)[k]->wait();
    int wrong = 0;
    for (int64_t k = 0; k < 6; ++k)
      for (int64_t i = 0; i < count; ++i) {
        float sum_a = 0, sum_b = 0;
        for (int r = 0; r < a.size(); ++r) sum_a += static_cast<float>(sample(DType::f32, r + static_cast<int>(k), i));
        for (int r = 0; r < b.size(); ++r)
          sum_b += static_cast<float>(sample(DType::f32, r + 2 * static_cast<int>(k), i));
        wrong += x[static_cast<size_t>(k)][static_cast<size_t>(i)] != sum_a;
        wrong += y[static_cast<size_t>(k)][static_cast<size_t>(i)] != sum_b;
      }
    CHECK(wrong == 0);
  }
}

/// Communicators of some ranks: pairs, and all in reverse order; two of the same ranks and name are separate.
inline void check_groups(World& world) {
  int n = world.size(), me = world.rank(), partner = me ^ 1;
  std::vector<int> reverse(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) reverse[static_cast<size_t>(r)] = n - 1 - r;
  auto all = world.make_communicator(reverse, "reverse"), again = world.make_communicator(reverse, "reverse");
  CHECK(all->rank() == n - 1 - me);
  std::vector<int64_t> ones(static_cast<size_t>(n), 1);
  std::vector<int32_t> gathered(static_cast<size_t>(n));
  int32_t mine = me;
  all->all_gather(&mine, gathered.data(), ones, DType::i32);
  CHECK(gathered == std::vector<int32_t>(reverse.begin(), reverse.end()));
  check_overlap(*all, *again);
  std::vector<int> two{std::min(me, partner), std::max(me, partner)};
  auto pair = world.make_communicator(partner < n ? two : std::vector<int>{me}, "pair");
  check_collectives(*pair);
  check_overlap(*pair, *all);
  all->barrier();
}

/// The error that `f` throws as E, or "".
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& e) { return e.what(); }
  return "";
}
inline bool has(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }

/// Calls that differ by rank: CommError on every rank, alike, naming both; the communicator works on afterwards.
inline void check_disagreements(World& world) {
  Communicator& comm = world.communicator();
  int me = world.rank(), n = world.size();
  if (n < 2) return;
  bool odd = me == 1;
  std::vector<float> x(64, 1.0f), y(64 * static_cast<size_t>(n));
  auto expect = [&](const std::string& text, std::initializer_list<const char*> words) {
    for (const char* w : words) {
      INFO(text);
      CHECK(has(text, w));
    }
  };
  expect(message_of<CommError>(
             [&] { comm.all_reduce(x.data(), odd ? 4 : 3, DType::f32, ReduceOp::sum, Device::Cpu, "loss"); }),
         {"rank 0", "rank 1", "all_reduce 'loss' of 3 f32, sum", "all_reduce 'loss' of 4 f32, sum", "world"});
  expect(message_of<CommError>([&] {
           if (odd)
             comm.barrier();
           else
             comm.broadcast(x.data(), 2, DType::i32, 1);
         }),
         {"rank 0 calls broadcast of 2 i32 from member 1", "rank 1 calls barrier"});
  expect(message_of<CommError>([&] { comm.all_reduce(x.data(), 3, odd ? DType::i32 : DType::f32); }),
         {"3 f32", "3 i32"});
  expect(message_of<CommError>([&] { comm.all_reduce(x.data(), 3, DType::f32, odd ? ReduceOp::max : ReduceOp::sum); }),
         {"sum", "max"});
  expect(message_of<CommError>([&] { comm.broadcast(x.data(), 3, DType::f32, odd ? 1 : 0); }),
         {"member 0", "member 1"});
  expect(message_of<CommError>(
             [&] { comm.all_reduce(x.data(), 3, DType::f32, ReduceOp::sum, Device::Cpu, odd ? "up" : "down"); }),
         {"'up'", "'down'"});
  std::vector<int64_t> counts(static_cast<size_t>(n), 4);
  if (odd) counts[0] = 3;
  expect(message_of<CommError>([&] { comm.all_gather(x.data(), y.data(), counts, DType::f32); }),
         {"all_gather of [4, 4", "all_gather of [3, 4"});
  int64_t count = odd ? 1 : 2;
  expect(message_of<CommError>([&] { comm.all_reduce(nullptr, count, DType::f32, ReduceOp::sum, Device::Meta); }),
         {"on meta"});
  expect(message_of<CommError>(
             [&] { comm.start({.kind = CollectiveKind::all_reduce, .recv = x.data(), .count = count})->wait(); }),
         {"of 1 f32", "of 2 f32"});
  float one = 1;
  comm.all_reduce(&one, 1, DType::f32);
  CHECK(one == n);
}

/// all_to_all where the last rank expects another number from rank 0 than that sends.
inline void check_pair_counts(World& world) {
  int n = world.size();
  std::vector<float> x(4 * static_cast<size_t>(n)), y(x);
  std::vector<int64_t> send(static_cast<size_t>(n), 2), recv = send;
  if (world.rank() == n - 1) recv[0] = 3;
  std::string text =
      message_of<CommError>([&] { world.communicator().all_to_all(x.data(), send, y.data(), recv, DType::f32); });
  CAPTURE(text);
  CHECK(has(text, "rank 0 sends 2 elements to rank " + std::to_string(n - 1) + ", which expects 3"));
  world.communicator().barrier();
}

}  // namespace cleave::test
