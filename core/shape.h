// Sizes, strides and lists of dims: up to 8 integers, inline, without allocation.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace cleave {

inline constexpr int kMaxDims = 8;

namespace detail {
[[noreturn]] void too_many_dims(int64_t n);
}

/// A short list of integers, one per dim. Base of Shape, Strides and Dims.
class IntList {
 public:
  IntList() = default;
  IntList(std::initializer_list<int64_t> values) { assign(values.begin(), values.end()); }
  explicit IntList(const std::vector<int64_t>& values) { assign(values.begin(), values.end()); }
  IntList(int n, int64_t value) {
    resize(n);
    std::fill(begin(), end(), value);
  }

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t operator[](int64_t i) const { return v_[static_cast<size_t>(i)]; }
  int64_t& operator[](int64_t i) { return v_[static_cast<size_t>(i)]; }
  int64_t back() const { return v_[static_cast<size_t>(rank_) - 1]; }
  const int64_t* begin() const { return v_.data(); }
  const int64_t* end() const { return v_.data() + rank_; }
  int64_t* begin() { return v_.data(); }
  int64_t* end() { return v_.data() + rank_; }

  /// Elements past the old rank are zero. Throws ShapeError above 8.
  void resize(int n) {
    if (n > kMaxDims) detail::too_many_dims(n);
    for (int i = rank_; i < n; ++i) v_[static_cast<size_t>(i)] = 0;
    rank_ = static_cast<int8_t>(n);
  }
  void push_back(int64_t value) {
    resize(rank_ + 1);
    v_[static_cast<size_t>(rank_) - 1] = value;
  }
  void insert(int64_t at, int64_t value) {
    push_back(0);
    for (int64_t i = rank_ - 1; i > at; --i) (*this)[i] = (*this)[i - 1];
    (*this)[at] = value;
  }
  void erase(int64_t at) {
    for (int64_t i = at; i + 1 < rank_; ++i) (*this)[i] = (*this)[i + 1];
    --rank_;
  }
  bool contains(int64_t value) const { return std::find(begin(), end(), value) != end(); }

  friend bool operator==(const IntList& a, const IntList& b) {
    return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  template <class It>
  void assign(It first, It last) {
    resize(static_cast<int>(last - first));
    std::copy(first, last, begin());
  }
  std::array<int64_t, kMaxDims> v_{};
  int8_t rank_ = 0;
};

/// Sizes by dim. `Shape{}` is a scalar's.
struct Shape : IntList {
  using IntList::IntList;
};
/// Elements between neighbours, by dim.
struct Strides : IntList {
  using IntList::IntList;
};
/// A choice of dims, negative ones counted from the end; a single int converts. `{}` often means all.
struct Dims : IntList {
  using IntList::IntList;
  Dims(int dim) : IntList({dim}) {}
  Dims(int64_t dim) : IntList({dim}) {}
};

/// Product of the sizes; 1 for a scalar.
int64_t numel(const Shape& shape);
/// Strides of a dense row-major tensor of this shape.
Strides contiguous_strides(const Shape& shape);
/// Whether elements of (shape, strides) lie dense in row-major order; dims of size 1 do not matter.
bool is_contiguous(const Shape& shape, const Strides& strides);
/// "[2, 8]"; "[]" for a scalar.
std::string to_string(const IntList& list);

}  // namespace cleave
