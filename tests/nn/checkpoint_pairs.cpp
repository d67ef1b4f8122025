// Every pair of a way to save and a way to load, directly.
#include "nn/checkpoint_training.h"

using namespace cleave;
using namespace cleave::test;

namespace {

struct Place {
  int ranks;
  Plan plan;
};
std::vector<Place> places() {
  std::vector<Place> out;
  for (int n : {1, 2, 3, 4})
    for (Plan plan : kPlans) out.push_back({n, plan});
  return out;
}
std::string name_of(const Place& p) { return "saved" + std::to_string(p.ranks) + std::to_string(p.plan); }

// The gathered bytes of all that a checkpoint has.
std::map<std::string, std::string> state_of(const Training& t) {
  std::map<std::string, std::string> out = bytes_of(nn::named_tensors(t.model));
  for (const auto& [name, x] : t.optimizer.state()) out["optimizer/" + name] = bytes_of(x);
  return out;
}

}  // namespace

TEST_CASE("saved at 1 to 4 ranks under any plan, loaded at each of these: the gathered state has the same bits") {
  TemporaryFolder folder;
  save_first(folder.path("first"));
  std::map<std::string, std::string> first;
  dist::run_ranks({.ranks = 1}, [&](dist::World& world) {
    Training t(world, plain, 7);
    load(t, folder.path("first"));
    first = state_of(t);
  });
  CHECK(first.size() > 15);
  for (const Place& p : places())
    dist::run_ranks({.ranks = p.ranks}, [&](dist::World& world) {
      Training t(world, p.plan, 7);
      load(t, folder.path("first"));
      nn::save_checkpoint(folder.path(name_of(p)), t.content());
    });
  for (const Place& to : places()) {
    CAPTURE(to.ranks);
    CAPTURE(to.plan);
    dist::run_ranks({.ranks = to.ranks}, [&](dist::World& world) {
      Training t(world, to.plan, 8);
      for (const Place& from : places()) {
        CAPTURE(from.ranks);
        CAPTURE(from.plan);
        NoGrad off;  // nothing of the load before may stay
        for (auto& [name, x] : nn::named_tensors(t.model)) fill_(x.detach(), 9);
        load(t, folder.path(name_of(from)));
        CHECK(state_of(t) == first);
      }
    });
  }
}
