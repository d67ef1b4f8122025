// Texts and batches: which bytes, in which order, which windows.
#include <cleave/core/error.h>
#include <cleave/ops/host.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "apps/temporary_folder.h"
#include "gpt/data.h"

using namespace gpt;
using gpt::test::TemporaryFolder;

namespace {
std::string bytes(const std::vector<uint8_t>& v) { return {v.begin(), v.end()}; }
}  // namespace

TEST_CASE("a folder is read in the order of its paths, and the last 5 % are held out") {
  TemporaryFolder folder;
  folder.write("b/two", std::string(30, '2'));
  folder.write("a", std::string(20, '1'));
  folder.write("b/a/three", std::string(30, '3'));
  folder.write("c", std::string(20, '4'));
  Corpus corpus = load_corpus(folder.path(), 4, 256);
  CHECK(corpus.files == 4);
  std::string all = std::string(20, '1') + std::string(30, '3') + std::string(30, '2') + std::string(20, '4');
  CHECK(bytes(corpus.train) == all.substr(0, 95));
  CHECK(bytes(corpus.held_out) == all.substr(95));
  CHECK(hash_of(corpus) == hash_of(load_corpus(folder.path(), 4, 256)));
  folder.write("c", std::string(19, '4') + "5");
  CHECK(hash_of(corpus) != hash_of(load_corpus(folder.path(), 4, 256)));
}

TEST_CASE("a single file is read whole") {
  TemporaryFolder folder;
  std::string text = std::string(70000, 'x') + std::string(1, '\0') + "end";
  Corpus corpus = load_corpus(folder.write("text", text), 16, 256);
  CHECK(bytes(corpus.train) + bytes(corpus.held_out) == text);
}

TEST_CASE("missing, empty, short and foreign texts are errors") {
  TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(load_corpus(folder.path("none"), 4, 256), doctest::Contains("does not exist"),
                       cleave::FileError);
  CHECK_THROWS_WITH_AS(load_corpus(folder.path(), 4, 256), doctest::Contains("holds no bytes"), cleave::FileError);
  CHECK_THROWS_AS(load_corpus(folder.write("empty", ""), 4, 256), cleave::FileError);
  CHECK_THROWS_WITH_AS(load_corpus("/dev/null", 4, 256), doctest::Contains("neither a file nor a folder"),
                       cleave::FileError);
  std::string text(100, 'a');
  CHECK_NOTHROW(load_corpus(folder.write("text", text), 5, 256));
  CHECK_THROWS_WITH_AS(load_corpus(folder.path("text"), 6, 256), doctest::Contains("window of 6"), cleave::ValueError);
  CHECK_THROWS_WITH_AS(load_corpus(folder.path("text"), 5, 97), doctest::Contains("97"), cleave::ValueError);
}

TEST_CASE("the default text is there, and is a folder of headers") {
  std::string path = default_data();
  CHECK(std::filesystem::exists(path + "/vector"));
}

TEST_CASE("targets are the next bytes") {
  std::vector<uint8_t> text = {10, 11, 12, 13, 14, 15, 16};
  Batch batch = windows(text, {0, 3}, 3);
  CHECK(batch.ids.shape() == cleave::Shape{2, 3});
  CHECK(cleave::to_vector<int64_t>(batch.ids) == std::vector<int64_t>{10, 11, 12, 13, 14, 15});
  CHECK(cleave::to_vector<int64_t>(batch.targets) == std::vector<int64_t>{11, 12, 13, 14, 15, 16});
}

TEST_CASE("random batches depend on seed and step alone, and reach the whole text") {
  std::vector<uint8_t> text;
  for (int i = 0; i < 20; ++i) text.push_back(static_cast<uint8_t>(i));
  auto first = [&](uint64_t seed, int64_t step) {
    return cleave::to_vector<int64_t>(random_batch(text, 64, 4, seed, step).ids);
  };
  CHECK(first(1, 1) == first(1, 1));
  CHECK(first(1, 1) != first(1, 2));
  CHECK(first(1, 1) != first(2, 1));
  std::set<int64_t> starts;
  for (int64_t step = 1; step <= 8; ++step) {
    auto ids = first(7, step);
    for (size_t i = 0; i < ids.size(); i += 4) starts.insert(ids[i]);
  }
  CHECK(*starts.begin() == 0);
  CHECK(*starts.rbegin() == 15);  // its last target is the last byte
  CHECK(starts.size() == 16);
}

TEST_CASE("even starts span the text") {
  CHECK(even_starts(100, 1, 10) == std::vector<int64_t>{0});
  CHECK(even_starts(100, 4, 9) == std::vector<int64_t>{0, 30, 60, 90});
  CHECK(even_starts(11, 3, 10) == std::vector<int64_t>{0, 0, 0});
}
