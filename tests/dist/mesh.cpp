// Meshes: coordinates, parts, the errors of their making, communicators by set of axes.
#include <doctest/doctest.h>

#include <cleave/core/error.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>

using namespace cleave;
using namespace cleave::dist;

namespace {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const LayoutError& e) { return e.what(); }
  return "no LayoutError";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a mesh is row-major and equal meshes are one") {
  for (int rank = 0; rank < 6; ++rank)
    simulate(6, rank, [&](World& world) {
      DeviceMesh mesh(world, {{"dp", 2}, {"tp", 3}});
      CHECK(mesh.coordinate("dp") == rank / 3);
      CHECK(mesh.coordinate("tp") == rank % 3);
      CHECK(mesh.size() == 6);
      CHECK(mesh.axes() == 2);
      CHECK(mesh.size("tp") == 3);
      CHECK(mesh.name(1) == "tp");
      CHECK(mesh.contains_self());
      CHECK(mesh == DeviceMesh(world, {{"dp", 2}, {"tp", 3}}));
      CHECK(mesh != DeviceMesh(world, {{"dp", 3}, {"tp", 2}}));
      CHECK(to_string(mesh) == "mesh(dp=2, tp=3)");
      for (int i = 0; i < 6; ++i) CHECK(mesh.state()->index_of(mesh.state()->coordinates_of(i)) == i);
    });
}

TEST_CASE("a mesh over some ranks, in any order, known to all") {
  for (int rank = 0; rank < 5; ++rank)
    simulate(5, rank, [&](World& world) {
      DeviceMesh mesh(world, {{"a", 2}, {"b", 2}}, {4, 1, 0, 2});
      int place[] = {2, 1, 3, -1, 0};
      int at = place[rank];
      CHECK(mesh.contains_self() == (at >= 0));
      CHECK(mesh.coordinate("a") == (at < 0 ? -1 : at / 2));
      CHECK(mesh.coordinate("b") == (at < 0 ? -1 : at % 2));
      CHECK(mesh.layout("a, b").defined());
    });
}

TEST_CASE("parts of a mesh") {
  for (int rank = 0; rank < 8; ++rank)
    simulate(8, rank, [&](World& world) {
      DeviceMesh mesh(world, {{"pp", 2}, {"dp", 2}, {"tp", 2}});
      DeviceMesh stage = mesh.at("pp", 1);
      CHECK(to_string(stage) == "mesh(dp=2, tp=2)");
      CHECK(stage.state()->ranks() == std::vector<int>{4, 5, 6, 7});
      CHECK(stage.contains_self() == (rank >= 4));
      CHECK(mesh.at("tp", 0).state()->ranks() == std::vector<int>{0, 2, 4, 6});
      DeviceMesh mine = mesh.sub({"tp", "pp"});
      CHECK(to_string(mine) == "mesh(tp=2, pp=2)");
      int dp = rank / 2 % 2 * 2;
      CHECK(mine.state()->ranks() == std::vector<int>{dp, dp + 4, dp + 1, dp + 5});
      CHECK(mesh.sub({"dp"}).contains_self());
      CHECK(mesh.at("pp", 0).at("dp", 0).at("tp", 1).size() == 1);
      CHECK(contains(error_of([&] { (void)mesh.at("pp", 2); }), "no coordinate 2"));
      CHECK(contains(error_of([&] { (void)mesh.sub({"dp", "dp"}); }), "twice"));
      if (rank < 4) CHECK(contains(error_of([&] { (void)stage.sub({"dp"}); }), "outside mesh(dp=2, tp=2)"));
    });
}

TEST_CASE("a mesh that cannot be is refused") {
  simulate(4, 0, [](World& world) {
    auto message = [&](const std::vector<MeshAxis>& axes) { return error_of([&] { DeviceMesh(world, axes); }); };
    CHECK(contains(message({{"dp", 2}, {"tp", 3}}), "mesh(dp=2, tp=3) has 6 places for 4 ranks"));
    CHECK(contains(message({{"dp", 2}, {"dp", 2}}), "axis dp stands twice"));
    CHECK(contains(message({{"", 4}}), "name of axis 0"));
    CHECK(contains(message({{"a-b", 4}}), "\"a-b\""));
    CHECK(contains(message({{"2a", 4}}), "a letter first"));
    CHECK(contains(message({{"dp", 0}}), "size 0"));
    CHECK(contains(message(std::vector<MeshAxis>(9, {"a", 1})), "at most 8"));
    CHECK(contains(error_of([&] { DeviceMesh(world, {{"a", 2}}, {0, 4}); }), "rank 4"));
    CHECK(contains(error_of([&] { DeviceMesh(world, {{"a", 2}}, {1, 1}); }), "rank 1 stands twice"));
    CHECK(contains(error_of([&] {
                     DeviceMesh(world, {{"a", 4}}).size("q");
                   }),
                   "mesh(a=4) has no axis q; its axes are a"));
  });
}

TEST_CASE("communicators of sets of axes have their ranks row-major") {
  run_ranks({.ranks = 6}, [](World& world) {
    DeviceMesh mesh(world, {{"a", 3}, {"b", 2}});
    for (AxisMask mask : {0u, 1u, 2u, 3u}) {
      Communicator& group = mesh.state()->communicator(mask);
      auto members = mesh.state()->group(mask);
      check(group.size() == static_cast<int>(members.size()));
      check(members[static_cast<size_t>(group.rank())] == mesh.state()->coordinates());
      check(&group == &mesh.state()->communicator(mask));
      std::vector<int32_t> ranks(members.size());
      std::vector<int64_t> counts(members.size(), 1);
      int32_t mine = world.rank();
      group.all_gather(&mine, ranks.data(), counts, DType::i32);
      for (size_t i = 0; i < members.size(); ++i) check(ranks[i] == mesh.state()->index_of(members[i]));
    }
    check(mesh.state()->axis_names(3) == "a.b");
  });
}
