// Token files and folders of them: what is read back, what is refused.
#include <array>
#include <chrono>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "nn/data_support.h"

using namespace cleave;
using namespace cleave::test;
using nn::TokenDataset;
using nn::TokenFile;
using nn::TokenFileWriter;

namespace {

std::vector<int64_t> read_all(const TokenFile& file) {
  std::vector<int64_t> out(static_cast<size_t>(file.size()));
  file.read(0, file.size(), out.data());
  return out;
}

// A file of the format, byte by byte, as its description says.
std::string token_bytes(uint32_t width, const std::vector<uint32_t>& tokens, uint64_t vocab,
                        const std::vector<uint64_t>& documents = {}) {
  std::string out = "cleavtok";
  auto add = [&](auto number, size_t bytes) { out.append(reinterpret_cast<const char*>(&number), bytes); };
  add(uint32_t{2}, 4);
  add(width, 4);
  add(uint64_t{tokens.size()}, 8);
  add(vocab, 8);
  add(uint64_t{documents.size()}, 8);
  out.resize(64, '\0');
  for (uint32_t t : tokens) add(t, width);
  uint64_t hash = XXH3_64bits(out.data() + 64, out.size() - 64);
  std::memcpy(out.data() + 40, &hash, 8);
  out.resize((out.size() + 7) / 8 * 8, '\0');
  for (uint64_t d : documents) add(d, 8);
  return out;
}

std::string refused(const TemporaryFolder& folder, const std::string& bytes) {
  std::string path = folder.write("bad.bin", bytes);
  std::string message = message_of<FileError>([&] { TokenFile::open(path); });
  CHECK(message.find(path) != std::string::npos);
  return message;
}

}  // namespace

TEST_CASE("a token file gives back what was written, in 2 or 4 bytes, with its documents") {
  TemporaryFolder folder;
  for (int64_t vocab : {int64_t{1}, int64_t{65536}, int64_t{65537}, int64_t{1} << 32}) {
    CAPTURE(vocab);
    auto top = static_cast<uint32_t>(vocab - 1);
    std::string path = folder.path("tokens");
    TokenFileWriter writer(path, vocab);
    writer.begin_document();
    writer.append(std::vector<uint32_t>{0, top});
    writer.begin_document();  // an empty one
    writer.begin_document();
    writer.append(std::vector<uint32_t>{top, 0, top});
    CHECK_FALSE(std::filesystem::exists(path));
    writer.commit();
    CHECK(TokenFile::is_token_file(path));
    TokenFile file = TokenFile::open(path);
    CHECK(file.vocab() == vocab);
    CHECK(file.token_bytes() == (vocab <= 65536 ? 2 : 4));
    CHECK(read_all(file) == std::vector<int64_t>{0, top, top, 0, top});
    CHECK(file.documents() == 3);
    CHECK(file.document_of(0) == 0);
    CHECK(file.document_of(1) == 0);
    CHECK(file.document_of(2) == 2);
    CHECK(file.document_of(4) == 2);
    std::filesystem::remove(path);
  }
}

TEST_CASE("the bytes of a token file are those of the described format") {
  TemporaryFolder folder;
  std::vector<uint32_t> tokens = {7, 300, 65535};
  TokenFileWriter writer(folder.path("two"), 65536);
  writer.append(tokens);
  writer.begin_document();  // what stood before is a document too
  writer.commit();
  CHECK(folder.read("two") == token_bytes(2, tokens, 65536, {0, 3}));
  CHECK(read_all(TokenFile::open(folder.write("one", token_bytes(1, {0, 255}, 256)))) == std::vector<int64_t>{0, 255});
  CHECK(read_all(TokenFile::open(folder.write("four", token_bytes(4, {70000}, 70001)))) == std::vector<int64_t>{70000});
  CHECK(TokenFile::open(folder.write("none", token_bytes(2, {}, 5))).size() == 0);
}

TEST_CASE("an unfinished file is not there, and the one before stays") {
  TemporaryFolder folder;
  std::string path = write_tokens(folder, "tokens", 3);
  {
    TokenFileWriter writer(path, 10);
    writer.append(std::vector<uint32_t>{1});
    CHECK_THROWS_WITH_AS(writer.append(std::vector<uint32_t>{10}), doctest::Contains("10"), ValueError);
  }
  CHECK(read_all(TokenFile::open(path)) == std::vector<int64_t>{0, 1, 2});
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK_THROWS_AS(TokenFileWriter(folder.path("no/such/folder"), 10), FileError);
  CHECK_THROWS_AS(TokenFileWriter(path, 0), ValueError);
  CHECK_THROWS_AS(TokenFileWriter(path, (int64_t{1} << 32) + 1), ValueError);
}

TEST_CASE("files that are cut, too long or malformed are refused by name and fault") {
  TemporaryFolder folder;
  std::string good = token_bytes(2, {1, 2, 3}, 10, {0, 2});
  for (size_t n = 0; n < good.size(); ++n) {
    CAPTURE(n);
    refused(folder, good.substr(0, n));
  }
  CHECK(refused(folder, good + "x").find("promises 3 tokens") != std::string::npos);
  auto with = [&](size_t at, auto number) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &number, sizeof number);
    return refused(folder, bytes);
  };
  CHECK(with(0, 'C').find("does not begin with") != std::string::npos);
  CHECK(with(8, uint32_t{1}).find("version is 1") != std::string::npos);
  CHECK(with(12, uint32_t{3}).find("3 bytes") != std::string::npos);
  CHECK(with(24, uint64_t{0}).find("vocabulary is 0") != std::string::npos);
  for (uint64_t n : {uint64_t{2}, uint64_t{8}, uint64_t{1} << 60, uint64_t{1} << 63, ~uint64_t{0}}) {
    if (n != 2) with(16, n);  // two tokens fill as many words of 8 bytes as three
    with(32, n == 2 ? 3 : n);
  }
  CHECK(with(72, uint64_t{1}).find("documents") != std::string::npos);  // the first begins at 1
  CHECK(with(80, uint64_t{4}).find("documents") != std::string::npos);  // the second behind the end
  CHECK_THROWS_WITH_AS(TokenFile::open(folder.path("none")), doctest::Contains("none"), FileError);
  CHECK_THROWS_AS(TokenFile::open(folder.path()), FileError);
}

TEST_CASE("a token out of range is named with its file and position, when it is read") {
  TemporaryFolder folder;
  std::string path = folder.write("t.bin", token_bytes(2, {1, 9, 10, 3}, 10));
  TokenFile file = TokenFile::open(path);
  std::array<int64_t, 4> out{};
  CHECK_NOTHROW(file.read(0, 2, out.data()));
  CHECK_NOTHROW(file.read(3, 1, out.data()));
  check_throws<FileError>([&] { file.read(1, 3, out.data()); }, {path.c_str(), "token 10", "position 2", "10"});
  check_throws<FileError>([&] { file.read(0, 2, out.data(), 9); }, {"token 9", "position 1"});
  CHECK_THROWS_AS(file.read(3, 2, out.data()), ValueError);
  CHECK_THROWS_AS(file.read(-1, 1, out.data()), ValueError);
  CHECK_THROWS_AS(file.read(0, INT64_MAX, out.data()), ValueError);
  check_throws<FileError>([&] { TokenDataset(path).check(); }, {"position 2"});
}

TEST_CASE("a folder is its files in the order of their paths; a position has a file, a token and a document") {
  TemporaryFolder folder;
  write_tokens(folder, "b", 5, 100);
  folder.write("a/x.bin", token_bytes(1, {1, 2, 3}, 70000, {0, 1}));
  folder.write("a/empty", "");
  write_tokens(folder, "c", 70000, 0);  // large enough to be mapped
  TokenDataset data(folder.path());
  CHECK(data.size() == 3 + 5 + 70000);
  CHECK(data.files() == 3);
  CHECK(data.vocab() == 70000);
  CHECK_FALSE(data.is_text());
  std::vector<int64_t> all = read_all(data);
  CHECK(std::vector<int64_t>(all.begin(), all.begin() + 10) ==
        std::vector<int64_t>{1, 2, 3, 100, 101, 102, 103, 104, 0, 1});
  CHECK(all.back() == 69999);
  CHECK(to_string(data.locate(2)) == folder.path("a/x.bin") + ", token 2, document 1");
  CHECK(to_string(data.locate(3)) == folder.path("b") + ", token 0");
  CHECK(data.locate(8).offset == 0);
  CHECK(data.locate(data.size() - 1).offset == 69999);
  CHECK_THROWS_AS(data.locate(data.size()), ValueError);
  std::vector<int64_t> across(4);
  data.read(2, 4, across.data());
  CHECK(across == std::vector<int64_t>{3, 100, 101, 102});
}

TEST_CASE("text is its bytes, also where they are no UTF-8; the last 5 % can be held out") {
  TemporaryFolder folder;
  folder.write("b/two", std::string(30, '2'));
  folder.write("a", std::string(20, '1'));
  folder.write("b/a/three", std::string(29, '3') + "\xff");
  folder.write("c", std::string(20, '4'));
  TokenDataset data(folder.path());
  CHECK(data.is_text());
  CHECK(data.vocab() == 256);
  CHECK(data.files() == 4);
  std::vector<int64_t> all = read_all(data);
  CHECK(all[19] == '1');
  CHECK(all[20] == '3');
  CHECK(all[49] == 255);
  CHECK(all[50] == '2');
  auto [train, held_out] = data.split(0.05);
  CHECK(train.size() == 95);
  CHECK(held_out.size() == 5);
  CHECK(read_all(held_out) == std::vector<int64_t>(5, '4'));
  CHECK(held_out.locate(0).offset == 15);
  CHECK(data.split(0).second.size() == 0);
  CHECK(data.split(1).first.size() == 0);
  CHECK_THROWS_AS(data.split(1.5), ValueError);
  TokenDataset part = data.range(10, 30).range(5, 15);
  CHECK(read_all(part) == std::vector<int64_t>{'1', '1', '1', '1', '1', '3', '3', '3', '3', '3'});
  CHECK_THROWS_AS(part.range(0, 11), ValueError);
  CHECK_THROWS_AS(part.range(3, 2), ValueError);
  std::vector<int64_t> out(11);
  CHECK_THROWS_AS(part.read(0, 11, out.data()), ValueError);
  check_throws<FileError>([&] { TokenDataset(folder.path(), 128).check(); },
                          {"three", "token 255", "position 29", "128"});
}

TEST_CASE("what holds no tokens, is missing, or mixes kinds is an error") {
  TemporaryFolder folder;
  check_throws<FileError>([&] { TokenDataset(folder.path("none")); }, {"none", "does not exist"});
  check_throws<FileError>([&] { TokenDataset(folder.path()); }, {"holds no tokens"});
  check_throws<FileError>([&] { TokenDataset("/dev/null"); }, {"/dev/null", "neither a file nor a folder"});
  folder.write("x.bin", "hello");  // named as a token file
  check_throws<FileError>([&] { TokenDataset(folder.path()); }, {"x.bin", "no complete token file"});
  folder.write("x.bin", token_bytes(2, {1}, 2));
  folder.write("y.txt", "text");
  check_throws<FileError>([&] { TokenDataset(folder.path()); }, {"x.bin", "y.txt", "tokenize"});
  folder.write("y.txt", token_bytes(2, {1}, 3));
  check_throws<FileError>([&] { TokenDataset(folder.path()); }, {"several tokenizers", "x.bin", "2", "y.txt", "3"});
}

TEST_CASE("a folder's links are followed, what is hidden is left out, and no link leads nowhere or back") {
  TemporaryFolder folder;
  namespace fs = std::filesystem;
  folder.write("d/b", "bb");
  folder.write("d/.git/x", "no");
  folder.write("d/.DS_Store", "no");
  folder.write("other/c", "cc");
  folder.write("a", "aa");
  fs::create_directory_symlink(folder.path("other"), folder.path("d/e"));
  fs::create_symlink(folder.path("a"), folder.path("d/a"));
  CHECK(nn::files_below(folder.path("d")) ==
        std::vector<std::string>{folder.path("d/a"), folder.path("d/b"), folder.path("d/e/c")});
  fs::create_directory_symlink(folder.path("d"), folder.path("link"));
  CHECK(TokenDataset(folder.path("link")).size() == 6);
  fs::create_directory_symlink(folder.path("d"), folder.path("other/back"));
  check_throws<FileError>([&] { nn::files_below(folder.path("d")); }, {"d/e/back", "is in"});
  fs::remove(folder.path("other/back"));
  fs::remove(folder.path("a"));
  check_throws<FileError>([&] { nn::files_below(folder.path("d")); }, {"d/a", "link to nothing"});
}

TEST_CASE("a file may be replaced while it is open; one that is written to or cut is an error when it is read") {
  TemporaryFolder folder;
  std::string path = write_tokens(folder, "t.bin", 50000);
  TokenDataset data(path);
  std::array<int64_t, 2> out{};
  write_tokens(folder, "t.bin", 50000, 1);  // another file of that name
  data.read(40000, 2, out.data());
  CHECK(out == std::array<int64_t, 2>{40000, 40001});
  std::filesystem::remove(path);
  CHECK_NOTHROW(data.read(0, 2, out.data()));
  write_tokens(folder, "t.bin", 50000);
  for (bool cut : {false, true}) {
    TokenDataset again(path);
    again.read(0, 2, out.data());
    if (cut)
      std::filesystem::resize_file(path, 100000);
    else
      std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
    check_throws<FileError>([&] { again.read(40000, 2, out.data()); }, {"t.bin", "written to"});
    check_throws<FileError>([&] { again.verify(); }, {"t.bin", "written to"});
  }
}

TEST_CASE("the hash of a token file stands in it, and is checked when it is asked for") {
  TemporaryFolder folder;
  for (int64_t count : {0, 1, 3, 100, 50000}) {
    CAPTURE(count);
    TokenFile file = TokenFile::open(write_tokens(folder, "t.bin", count));
    std::string bytes = folder.read("t.bin").substr(64, static_cast<size_t>(count) * 4);
    CHECK(file.hash() == XXH3_64bits(bytes.data(), bytes.size()));
    CHECK_NOTHROW(file.verify());
    CHECK(TokenFile::text(folder.write("text", bytes)).hash() == file.hash());
  }
  std::string bytes = folder.read("t.bin");
  bytes[64 + 4 * 30000] ^= 1;
  TokenDataset damaged(folder.write("t.bin", bytes));
  check_throws<FileError>([&] { damaged.verify(); }, {"t.bin", "damaged"});
}

TEST_CASE("what will be read may be said for any range, and changes nothing") {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("d"));
  for (const char* name : {"d/a", "d/b"}) write_tokens(folder, name, 40000);
  TokenDataset data(folder.path("d"));
  for (auto [first, count] : {std::pair<int64_t, int64_t>{0, 80000},
                              {39999, 2},
                              {5, 0},
                              {-5, 10},
                              {79999, INT64_MAX},
                              {INT64_MAX, 5},
                              {70000, -1}})
    CHECK_NOTHROW(data.will_read(first, count));
  CHECK(read_all(data)[40001] == 1);
}

TEST_CASE("a bound holds for what is read through it") {
  TemporaryFolder folder;
  TokenDataset data(folder.write("t.bin", token_bytes(2, {1, 9, 10, 3}, 12)));
  CHECK(data.bounded(20).vocab() == 12);
  TokenDataset bounded = data.bounded(10).range(1, 4);
  CHECK(bounded.vocab() == 10);
  std::array<int64_t, 4> out{};
  CHECK_NOTHROW(bounded.read(0, 1, out.data()));
  check_throws<FileError>([&] { bounded.check(); }, {"token 10", "position 2", "vocabulary of 10"});
  CHECK_NOTHROW(data.check());
  CHECK_THROWS_AS(data.bounded(0), ValueError);
}

TEST_CASE("fingerprints tell apart data that differ in any byte, in their order, and parts of them") {
  TemporaryFolder folder;
  auto print = [&](const std::string& text, int64_t vocab = 0) {
    return TokenDataset(folder.write("text", text), vocab).fingerprint();
  };
  std::string text(70000, 'a');
  uint64_t first = print(text);
  CHECK(print(text) == first);
  for (size_t at : {size_t{0}, size_t{1}, size_t{100}, size_t{33333}, text.size() - 1}) {
    CAPTURE(at);
    std::string other = text;
    other[at] = 'b';
    CHECK(print(other) != first);
  }
  CHECK(print(text + "a") != first);
  CHECK(print(text, 128) != first);
  TokenDataset data(folder.write("text", text));
  CHECK(data.range(0, data.size()).fingerprint() == first);
  CHECK(data.range(1, data.size()).fingerprint() != first);
  CHECK(data.range(0, data.size() - 1).fingerprint() != first);
  folder.write("d/1", "ab");
  folder.write("d/2", "c");
  uint64_t two = TokenDataset(folder.path("d")).fingerprint();
  folder.write("d/1", "a");
  folder.write("d/2", "bc");
  CHECK(TokenDataset(folder.path("d")).fingerprint() != two);
  // Token files too, which were the same but for one token in the middle, where nothing but the hash tells.
  uint64_t tokens =
      TokenDataset(folder.write("t.bin", token_bytes(2, std::vector<uint32_t>(50000, 1), 9))).fingerprint();
  std::vector<uint32_t> ids(50000, 1);
  ids[25001] = 2;
  CHECK(TokenDataset(folder.write("t.bin", token_bytes(2, ids, 9))).fingerprint() != tokens);
}
