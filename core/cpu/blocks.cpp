#include <cleave/core/cpu/blocks.h>
#include <cleave/core/cpu/isa.h>

namespace cleave::cpu {

int64_t Dimensions::count() const {
  int64_t n = 1;
  for (int d = 0; d < rank; ++d) n *= size[d];
  return n;
}

void Dimensions::coalesce() {
  int kept = 0;
  for (int d = 0; d < rank; ++d) {
    if (size[d] == 1) continue;
    if (kept > 0 && stride[kept - 1] == stride[d] * size[d]) {
      size[kept - 1] *= size[d];
      stride[kept - 1] = stride[d];
    } else {
      size[kept] = size[d];
      stride[kept++] = stride[d];
    }
  }
  rank = kept;
}

int64_t Dimensions::offset(int64_t index) const {
  int64_t sum = 0;
  for (int d = rank - 1; d >= 0; --d) {
    sum += index % size[d] * stride[d];
    index /= size[d];
  }
  return sum;
}

void PairedDimensions::coalesce() {
  PairedDimensions out;
  for (int d = 0; d < rank(); ++d) {
    Dim now = at(d);
    if (now.size == 1) continue;
    int last = out.rank() - 1;
    if (last >= 0 && out.from.stride[last] == now.from * now.size && out.to.stride[last] == now.to * now.size)
      now.size *= out.take(last).size;
    out.add(now);
  }
  *this = out;
}

PairedDimensions::Dim PairedDimensions::take(int d) {
  Dim out = at(d);
  for (Dimensions* side : {&from, &to}) {
    for (int k = d; k + 1 < side->rank; ++k) {
      side->size[k] = side->size[k + 1];
      side->stride[k] = side->stride[k + 1];
    }
    --side->rank;
  }
  return out;
}

Space::Space(const View& lead) : rank(lead.rank()) {
  for (int d = 0; d < rank; ++d) {
    int64_t n = lead.shape[d];
    total *= n;
    if (n == 1) continue;
    int at = walked++;
    for (; at > 0 && lead.strides[dim[at - 1]] < lead.strides[d]; --at) {
      dim[at] = dim[at - 1];
      size[at] = size[at - 1];
    }
    dim[at] = d;
    size[at] = n;
  }
}

Dimensions Space::of(const View& view) const {
  Dimensions out;
  for (int k = 0; k < walked; ++k) {
    int d = dim[k] - (rank - view.rank());
    out.add(size[k], d < 0 || view.shape[d] == 1 ? 0 : view.strides[d]);
  }
  return out;
}

Walker::Walker(void* data, DType dtype, const Dimensions& dims, Compute type)
    : data_(static_cast<char*>(data)),
      at_(data_),
      item_(size_of(dtype)),
      width_(width_of(type)),
      filled_(0),
      dims_(dims) {
  const ConvertLoops& loops = CLEAVE_PICK(convert_loops);
  load_ = loops.load[static_cast<int>(dtype)][static_cast<int>(type)];
  store_ = loops.store[static_cast<int>(dtype)][static_cast<int>(type)];
  dims_.coalesce();
  if (dims_.rank == 0) dims_.add(1, 1);
  int64_t inner = dims_.stride[dims_.rank - 1];
  repeats_ = dims_.rank == 1 && inner == 0;
  dense_ = inner == 1 && dtype == stored_as(type);
  left_ = dims_.size[dims_.rank - 1];
}

void Walker::seek(int64_t index) {
  at_ = data_;
  for (int d = dims_.rank - 1; d >= 0; --d) {
    index_[d] = index == 0 ? 0 : index % dims_.size[d];
    index = index == 0 ? 0 : index / dims_.size[d];
    at_ += index_[d] * dims_.stride[d] * item_;
  }
  left_ = dims_.size[dims_.rank - 1] - index_[dims_.rank - 1];
}

int64_t Walker::clip(int64_t n) const {
  bool whole_rows = dims_.size[dims_.rank - 1] >= kLongRow || dims_.rank == 1;
  if (whole_rows && n > left_) n = left_;
  return (dense_ && whole_rows) || n <= kBlock ? n : kBlock;
}

void Walker::advance(int64_t n) {
  int d = dims_.rank - 1;
  at_ += n * dims_.stride[d] * item_;
  left_ -= n;
  if (left_ > 0) return;
  left_ = dims_.size[d];
  at_ -= left_ * dims_.stride[d] * item_;
  while (--d >= 0) {
    at_ += dims_.stride[d] * item_;
    if (++index_[d] < dims_.size[d]) return;
    at_ -= dims_.size[d] * dims_.stride[d] * item_;
    index_[d] = 0;
  }
}

const void* Walker::read(int64_t n, void* buffer) {
  if (in_place(n)) {
    const void* here = at_;
    advance(n);
    return here;
  }
  if (repeats_) {
    if (n > filled_) load_(at_, 0, filled_ = n, buffer);
    return buffer;
  }
  char* to = static_cast<char*>(buffer);
  while (n > 0) {
    int64_t now = std::min(n, left_);
    load_(at_, dims_.stride[dims_.rank - 1], now, to);
    to += now * width_;
    n -= now;
    advance(now);
  }
  return buffer;
}

void Walker::written(int64_t n, const void* buffer) {
  if (in_place(n)) return advance(n);
  const char* from = static_cast<const char*>(buffer);
  while (n > 0) {
    int64_t now = std::min(n, left_);
    store_(from, now, at_, dims_.stride[dims_.rank - 1]);
    from += now * width_;
    n -= now;
    advance(now);
  }
}

}  // namespace cleave::cpu
