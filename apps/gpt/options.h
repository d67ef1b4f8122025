// The command line.
#pragma once
#include <cleave/core/dtype.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "gpt/config.h"

namespace gpt {

struct TrainOptions {
  Config model;
  int64_t batch = 16;  ///< global
  cleave::DType dtype = cleave::DType::f32;
  int64_t steps = 800;
  double lr = 3e-3;
  std::optional<double> min_lr = std::nullopt;   ///< at the last step; default lr / 30
  std::optional<int64_t> warmup = std::nullopt;  ///< steps; default a tenth of all
  double weight_decay = 0.1;                     ///< of matrices
  double clip = 1.0;                             ///< 0: none
  uint64_t seed = 42;
  std::string data = {};  ///< "": the C++ headers of this machine
  std::string mesh = {}, plan = {};
  std::string log = {}, save = {};
  int64_t eval_every = 0;  ///< held-out loss every so many steps; 0: at the end only
  bool deferred = true;
  std::string compare = {};                 ///< "single", or nothing
  std::string trace = {};                   ///< file, or nothing
  int64_t trace_first = 0, trace_last = 0;  ///< 0: as in traced_steps()
  bool profile = false;
};

struct GenerateOptions {
  std::string model;
  std::string prompt;
  int64_t tokens = 400;
  double temperature = 0.8;  ///< 0: the likeliest token
  int64_t top_k = 0;         ///< 0: all
  uint64_t seed = 42;
};

struct PlanOptions {
  Config model;
  int64_t batch = 16;
  cleave::DType dtype = cleave::DType::f32;
  std::string mesh = {}, plan = {};
  bool explain = false;
};

using Options = std::variant<TrainOptions, GenerateOptions, PlanOptions>;

/// The options of `gpt train`, `gpt generate` or `gpt plan`; or the exit code, after help (0) or a message about what
/// cannot be read (1) was printed. Throws ValueError for values that do not fit each other.
std::variant<Options, int> parse_command_line(int argc, char** argv);

}  // namespace gpt
