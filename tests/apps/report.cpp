// gpt report: logs read again, and the page made of them.
#include "gpt/report.h"

#include <cleave/core/error.h>

#include <doctest/doctest.h>

#include <cctype>
#include <cmath>

#include "apps/temporary_folder.h"
#include "gpt/chart.h"
#include "gpt/log.h"

using namespace gpt;
using gpt::test::TemporaryFolder;

namespace {

StepRecord record(int64_t step, double loss) {
  return {.step = step,
          .loss = loss,
          .grad_norm = 1.5,
          .lr = 1e-3,
          .ms = 10,
          .tokens_per_s = 1000 + static_cast<double>(step),
          .peak_bytes = {3 << 20, 7 << 20},
          .comm = {{.phase = "forward", .axis = "tp", .kind = cleave::dist::CollectiveKind::all_reduce, .bytes = 100},
                   {.phase = "backward", .axis = "tp", .kind = cleave::dist::CollectiveKind::all_reduce, .bytes = 50},
                   {.phase = "backward", .axis = "dp", .kind = cleave::dist::CollectiveKind::all_reduce, .bytes = 7}}};
}

// The names of tags that do not nest, or "".
std::string broken_tag(std::string html) {
  if (size_t script = html.find("<script>"); script != std::string::npos)  // its < are none of tags
    html.erase(script, html.find("</script>") + 9 - script);
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    size_t end = html.find('>', at);
    if (end == std::string::npos) return "no end";
    std::string tag = html.substr(at + 1, end - at - 1);
    if (tag[0] == '!' || tag.back() == '/') continue;
    bool closes = tag[0] == '/';
    std::string name;
    for (size_t i = closes; i < tag.size() && std::isalnum(static_cast<unsigned char>(tag[i])); ++i) name += tag[i];
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return name;
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back();
}

std::string error_of(const TemporaryFolder& folder, const std::string& text) {
  try {
    read_run_log(folder.write("bad.jsonl", text));
  } catch (const cleave::Error& e) { return e.what(); }
  return "";
}

}  // namespace

TEST_CASE("a log is read as it was written") {
  TemporaryFolder folder;
  StepRecord second = record(2, std::nan(""));
  second.held_out = 2.25;
  second.outliers = {"loss"};
  second.loss_z = 6.5;
  RunLog run = read_run_log(folder.write("run.jsonl", to_json(record(1, 3)) + "\n\n" + to_json(second) + "\n"));
  REQUIRE(run.steps.size() == 2);
  CHECK(run.name == "run.jsonl");
  CHECK(run.steps[0].loss == 3);
  CHECK(run.steps[0].peak_bytes == std::vector<double>{3 << 20, 7 << 20});
  CHECK(run.steps[0].comm_bytes == std::map<std::string, double>{{"dp", 7}, {"tp", 150}});
  CHECK(std::isnan(run.steps[0].held_out));
  CHECK(std::isnan(run.steps[1].loss));
  CHECK(run.steps[1].held_out == 2.25);
  CHECK(run.steps[1].loss_outlier);
  CHECK_FALSE(run.steps[1].grad_norm_outlier);
  CHECK(run.steps[1].loss_z == 6.5);
}

TEST_CASE("lines that are none of a log are named") {
  TemporaryFolder folder;
  std::string good = to_json(record(1, 3)) + "\n";
  CHECK(error_of(folder, good + "{\"step\": 2, \"lo\n" + good).find("bad.jsonl:2 is not JSON") != std::string::npos);
  CHECK(error_of(folder, good + "{\"step\": 2, \"lo").empty());  // a run that was killed, or is writing
  CHECK(error_of(folder, "{\"step\": 2, \"lo").find("has no lines") != std::string::npos);
  CHECK(error_of(folder, "[1]").find(":1 is JSON, but no object") != std::string::npos);
  CHECK(error_of(folder, good + "\n{\"loss\": 2}").find(":3 has no field \"step\"") != std::string::npos);
  CHECK(error_of(folder, "{\"step\": 0}").find("step") != std::string::npos);
  CHECK(error_of(folder, "{\"step\": 1.5}").find("step") != std::string::npos);
  CHECK(error_of(folder, good + good).find(":2 has step 1 behind step 1") != std::string::npos);
  CHECK(error_of(folder, "{\"step\": 1, \"loss\": \"x\"}").find("\"loss\", but it is no number") != std::string::npos);
  CHECK(error_of(folder, "{\"step\": 1, \"comm\": {}}").find("no list") != std::string::npos);
  CHECK(error_of(folder, "{\"step\": 1, \"comm\": [3]}").find("\"comm\"") != std::string::npos);
  CHECK(error_of(folder, "{\"step\": 1, \"z\": 3}").find("\"z\"") != std::string::npos);
  CHECK(error_of(folder, "\n \n").find("has no lines") != std::string::npos);
  CHECK_THROWS_AS(read_run_log(folder.path("none.jsonl")), cleave::FileError);
  CHECK(error_of(folder, "{\"step\": 1}").empty());  // all but the step may be missing
}

TEST_CASE("the page is whole and has the numbers in it") {
  RunLog one{.name = "one<&>.jsonl", .steps = {}}, two{.name = "two.jsonl", .steps = {}};
  for (int64_t step = 1; step <= 2000; ++step)
    one.steps.push_back({.step = step,
                         .loss = step == 1000 ? kMissing : 5 - 0.001 * static_cast<double>(step),
                         .grad_norm = 1 + 0.1 * static_cast<double>(step % 3),
                         .lr = 0.01,
                         .tokens_per_s = 500,
                         .held_out = step % 500 ? kMissing : 4.125,
                         .grad_norm_outlier = step == 7,
                         .peak_bytes = {1 << 20, 3 << 20},
                         .comm_bytes = {{"tp", 2 << 20}}});
  for (int64_t step = 1; step <= 3; ++step) two.steps.push_back({.step = step, .loss = 2, .skipped = step == 2});
  std::string page = report_html({one, two});
  CHECK(broken_tag(page) == "");
  CHECK(page.find("one&lt;&amp;&gt;.jsonl") != std::string::npos);
  CHECK(page.find("one<") == std::string::npos);
  CHECK(page.find("http") == std::string::npos);
  CHECK(page.find("nan") == std::string::npos);
  CHECK(page.find("inf") == std::string::npos);
  CHECK(page.find(
            "<td>2000</td><td>-</td><td>3.0000</td><td>4.1250</td><td>4.1250</td><td>500</td><td>3.0 MiB</td><td>0</td>"
            "<td>1</td>") != std::string::npos);
  CHECK(page.find("<td>3</td><td>-</td><td>2.0000</td><td>-</td><td>-</td><td>-</td><td>-</td><td>1</td><td>0</td>") !=
        std::string::npos);
  CHECK(page.find("step 1500, held out 4.1250") != std::string::npos);
  CHECK(page.find("step 7, gradient norm 1.1") != std::string::npos);
  CHECK(page.find("rank 1") != std::string::npos);
  CHECK(page.find("since the start <span>KiB</span>") != std::string::npos);  // 3 MiB at most
  CHECK(page.find("Loss scale") == std::string::npos);
  CHECK(page.find("step 2 was left out") != std::string::npos);
  CHECK(page.find("data-name=\"two.jsonl\" data-v=\"1 2,2 2,3 2\"") != std::string::npos);
  CHECK(page.size() < 400'000);
}

TEST_CASE("the row of a run: its time, last and best loss, median rate and highest peak") {
  RunLog run{.name = "run", .steps = {}};
  const double rates[] = {10, 30, 20, 100}, peaks[] = {3 << 20, 5 << 20, 4 << 20, 4 << 20};
  for (int64_t step = 1; step <= 4; ++step)
    run.steps.push_back({.step = step,
                         .loss = 1,
                         .ms = 1'830'500,
                         .tokens_per_s = rates[step - 1],
                         .held_out = step == 2   ? 2.0
                                     : step == 4 ? 2.5
                                                 : kMissing,
                         .peak_bytes = {peaks[step - 1], 1 << 20}});
  CHECK(report_html({run}).find("<td>4</td><td>2 h 2 min</td><td>1.0000</td><td>2.5000</td><td>2.0000</td><td>25</td>"
                                "<td>5.0 MiB</td>") != std::string::npos);
}

TEST_CASE("runs of one step, of equal numbers, and without any make a page too") {
  RunLog one{.name = "a", .steps = {{.step = 1, .loss = 0, .grad_norm = 0, .loss_scale = 65536}}};
  RunLog none{.name = "b", .steps = {{.step = 5}}};
  for (const auto& runs : {std::vector{one}, std::vector{none}, std::vector{one, none}}) {
    std::string page = report_html(runs);
    CHECK(broken_tag(page) == "");
    CHECK(page.find("nan") == std::string::npos);
    CHECK(page.find("inf") == std::string::npos);
  }
  CHECK(report_html({one}).find("Loss scale") != std::string::npos);
  std::string flat =
      to_svg({.title = "", .x_label = "", .y_label = "", .series = {{.name = "x", .points = {{1, 0.0}}}}});
  CHECK(flat.find("1e-12") == std::string::npos);  // zeros have an axis that can be read
  CHECK(flat.find(">0.5</text>") != std::string::npos);
  CHECK(report_html({none}).find("no numbers") != std::string::npos);
}

TEST_CASE("numbers and text for people") {
  CHECK(escaped("a<b>&\"'\n") == "a&lt;b&gt;&amp;&quot;&#39;");
  CHECK(short_number(0) == "0");
  CHECK(short_number(0.25) == "0.25");
  CHECK(short_number(12300) == "12.3k");
  CHECK(short_number(-4.5e6) == "-4.5M");
  CHECK(short_number(4.1e-5) == "4.1e-05");
}

TEST_CASE("a spike in a long line is drawn") {
  ChartSeries line{.name = "x", .color = 0, .dash = 0, .points = {}};
  for (int i = 0; i < 100'000; ++i) line.points.emplace_back(i, i == 54'321 ? 9.0 : 1.0);
  std::string with = to_svg({.title = "", .x_label = "", .y_label = "", .series = {line}});
  CHECK(with.size() < 60'000);
  size_t top = with.find(" 21."), path = with.find("<path");  // 9 is drawn near the top of the frame
  CHECK(path != std::string::npos);
  CHECK(top != std::string::npos);
}

TEST_CASE("logs of one name are told apart, and no log is written over") {
  TemporaryFolder folder;
  std::string a = folder.write("a/run.jsonl", to_json(record(1, 3)) + "\n"),
              b = folder.write("b/run.jsonl", to_json(record(1, 2)));
  write_report({a, b}, folder.path("page.html"));
  std::string page = folder.read("page.html");
  CHECK(page.find("<td>" + a + "</td>") != std::string::npos);
  CHECK(page.find("<td>" + b + "</td>") != std::string::npos);
  CHECK_THROWS_AS(write_report({a, b}, folder.path("a/../b/run.jsonl")), cleave::ValueError);
  CHECK(folder.read("b/run.jsonl") == to_json(record(1, 2)));
  CHECK_THROWS_AS(write_report({a}, folder.path("no/page.html")), cleave::FileError);
}
