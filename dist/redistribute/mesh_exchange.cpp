// box_exchange between two meshes: the ranks of either take part, those of neither do nothing.
#include <cleave/dist/redistribute/mesh_exchange.h>

#include <algorithm>
#include <map>

#include <cleave/dist/launch.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/steps.h>

namespace cleave::dist::steps {

namespace {

std::vector<int> index_by_rank(const MeshState& mesh, int world) {
  std::vector<int> out(static_cast<size_t>(world), -1);
  for (size_t i = 0; i < mesh.ranks().size(); ++i) out[static_cast<size_t>(mesh.ranks()[i])] = static_cast<int>(i);
  return out;
}

std::vector<Box> boxes_by_index(const Shape& global, const LayoutData& layout) {
  std::vector<Box> out;
  for (size_t i = 0; i < layout.mesh->ranks().size(); ++i)
    out.push_back(local_box(global, layout, layout.mesh->coordinates_of(static_cast<int>(i))));
  return out;
}

// The communicators of pairs of meshes, kept by the first.
Communicator& communicator_of(const MeshState& from, const MeshState& to, const std::vector<int>& ranks) {
  using Communicators = std::map<const MeshState*, std::unique_ptr<Communicator>>;
  static const char key = 0;
  auto& cache = from.cache(&key);
  if (!cache) cache = std::make_shared<Communicators>();
  auto& slot = (*static_cast<Communicators*>(cache.get()))[&to];
  if (!slot)
    slot = from.world().make_communicator(ranks, from.axis_names(from.all_axes()) + ">" + to.axis_names(to.all_axes()));
  return *slot;
}

}  // namespace

MeshExchange::MeshExchange(const Shape& global, const LayoutData& from, const LayoutData& to)
    : from_(from), to_(to), rank_of_tensor_(global.rank()) {
  int world = from.mesh->world().size();
  from_index_ = index_by_rank(*from.mesh, world);
  to_index_ = index_by_rank(*to.mesh, world);
  from_box_ = boxes_by_index(global, from);
  to_box_ = boxes_by_index(global, to);
  for (int r = 0; r < world; ++r)
    if (from_index_[static_cast<size_t>(r)] >= 0 || to_index_[static_cast<size_t>(r)] >= 0) ranks_.push_back(r);
}

bool MeshExchange::sends(int from_index, int receiver, int to_index) const {
  const MeshState& mesh = *from_.mesh;
  int own = from_index_[static_cast<size_t>(receiver)];
  auto sender = mesh.coordinates_of(from_index);
  std::array<int, kMaxAxes> replica{};
  if (own >= 0) replica = mesh.coordinates_of(own);
  AxisMask copies = mesh.all_axes() & ~from_.split();
  int turn = to_index;
  for (size_t a = 0; a < mesh.axes().size(); ++a) {
    if (!(copies & axis_bit(static_cast<int>(a)))) continue;
    int wanted = own >= 0 ? replica[a] : turn % mesh.axes()[a].size;
    turn /= mesh.axes()[a].size;
    if (sender[a] != wanted) return false;
  }
  return true;
}

Box MeshExchange::piece(int sender, int receiver) const {
  int i = from_index_[static_cast<size_t>(sender)], j = to_index_[static_cast<size_t>(receiver)];
  if (i < 0 || j < 0 || !sends(i, receiver, j)) return {Shape(rank_of_tensor_, 0), Shape(rank_of_tensor_, 0)};
  return overlap(from_box_[static_cast<size_t>(i)], to_box_[static_cast<size_t>(j)]);
}

int64_t MeshExchange::busiest() const {
  int64_t most = 0;
  for (int sender : from_.mesh->ranks()) {
    int64_t n = 0;
    for (int receiver : to_.mesh->ranks()) n += numel(piece(sender, receiver).shape);
    most = std::max(most, n);
  }
  return most;
}

Tensor mesh_exchange(const Tensor& x, const LayoutData* to, const char* label) {
  const LayoutData& from = *x.impl()->layout;
  MeshExchange exchange(x.shape(), from, *to);
  // A rank without a block of x sees a Meta tensor, whatever the others hold.
  World& world = from.mesh->world();
  Device device = x.impl()->absent && world.backend() != std::string_view("simulated") ? Device::Cpu : x.device();
  Tensor out = cleave::detail::make_tensor(x.shape(), local_box(x.shape(), *to).shape, x.dtype(), device, to,
                                           !to->mesh->member());
  if (!from.mesh->member() && !to->mesh->member()) return out;

  int self = world.rank();
  Box old_box = local_box(x.shape(), from), new_box = local_box(x.shape(), *to);
  std::vector<Box> outgoing, incoming;
  for (int other : exchange.ranks()) {
    outgoing.push_back(relative(exchange.piece(self, other), old_box));
    incoming.push_back(relative(exchange.piece(other, self), new_box));
  }
  Pieces sent = pack(x, outgoing);
  Pieces received = room(out, incoming);
  communicator_of(*from.mesh, *to->mesh, exchange.ranks())
      .all_to_all(sent.data, sent.counts, received.data, received.counts, x.dtype(), device, label);
  unpack(received, out.impl()->view, incoming);
  return out;
}

}  // namespace cleave::dist::steps
