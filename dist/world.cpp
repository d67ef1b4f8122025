#include <cleave/dist/internal/progress.h>
#include <cleave/dist/internal/world_backend.h>
#include <cleave/dist/mesh_state.h>

#include <cleave/core/error.h>

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::dist {
namespace {

thread_local World* current_world = nullptr;

bool same_axes(const std::vector<MeshAxis>& a, const std::vector<MeshAxis>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const MeshAxis& x, const MeshAxis& y) { return x.name == y.name && x.size == y.size; });
}

}  // namespace

World::World(std::unique_ptr<WorldBackend> backend, std::unique_ptr<WorldBackend> background)
    : backend_(std::move(backend)),
      progress_(background ? std::make_unique<Progress>(std::move(background)) : nullptr),
      overlaps_(progress_ || backend_->overlaps) {
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  communicator_ = make_communicator(all, "world");
  current_world = this;
}

World::~World() { current_world = nullptr; }

World* World::current() { return current_world; }
int World::rank() const { return backend_->rank; }
int World::size() const { return backend_->size; }
int World::local_size() const { return backend_->local_size; }
const char* World::backend() const { return backend_->name; }
const std::vector<std::string>& World::arguments() const { return backend_->arguments; }
Communicator& World::communicator() { return *communicator_; }

void World::check_members(const std::vector<int>& ranks, const std::string& name) const {
  auto refuse = [&](const std::string& why) {
    throw ValueError(fmt::format("[make_communicator] {} of [{}] {}", name, fmt::join(ranks, ", "), why));
  };
  for (int r : ranks)
    if (r < 0 || r >= size()) refuse(fmt::format("names rank {} of a world of {} ranks", r, size()));
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) refuse("names a rank twice");
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end())
    refuse(fmt::format("does not name rank {}, which called; only members make a communicator", rank()));
}

std::unique_ptr<Communicator> World::make_communicator(const std::vector<int>& ranks, const std::string& name) {
  check_members(ranks, name);
  if (ranks.size() == 1) return detail::make_self_communicator(name);
  return backend_->make_communicator(ranks, name);
}

std::unique_ptr<Communicator> World::make_background_communicator(const std::vector<int>& ranks,
                                                                  const std::string& name) {
  if (!progress_) return make_communicator(ranks, name);
  check_members(ranks, name);
  if (ranks.size() == 1) return detail::make_self_communicator(name);
  return progress_->communicator(ranks, name);
}

void World::finish() {
  if (progress_) progress_->finish();
}

const MeshState* World::mesh(const std::vector<MeshAxis>& axes, const std::vector<int>& ranks) {
  for (const auto& m : meshes_)
    if (same_axes(m->axes(), axes) && m->ranks() == ranks) return m.get();
  return meshes_.emplace_back(std::make_unique<MeshState>(*this, axes, ranks)).get();
}

}  // namespace cleave::dist
