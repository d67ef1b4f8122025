// The command line.
#pragma once
#include <cleave/core/dtype.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gpt/config.h"
#include "gpt/tokenize.h"

namespace gpt {

/// How the numbers of a step are made from one batch.
struct StepOptions {
  int64_t batch = 16;      ///< sequences, over all ranks and micro-batches
  int64_t accumulate = 1;  ///< micro-batches whose gradients are added up
  cleave::DType dtype = cleave::DType::f32;
  std::optional<cleave::DType> autocast = std::nullopt;  ///< products in this dtype, weights in `dtype`
  cleave::DType gradients = cleave::DType::f32;          ///< in which those of 16-bit weights are kept
  cleave::DType reduce = cleave::DType::f32;             ///< in which gradients are sent
  double loss_scale = 0;                                 ///< of f16, fixed; 0: dynamic
  std::vector<std::string> recompute = {};               ///< modules whose activations are made again in backward
  int64_t loss_chunk = 0;                                ///< tokens whose logits exist at a time; 0: all
};

/// Which numbers the weights are updated by.
struct UpdateOptions {
  std::string optimizer = "adamw";
  double lr = 3e-3;
  std::optional<double> min_lr = std::nullopt;   ///< at the last step; default lr / 30
  std::optional<int64_t> warmup = std::nullopt;  ///< steps; default a tenth of all
  double weight_decay = 0.1;                     ///< of matrices
  double clip = 1.0;                             ///< 0: none
  double ema = 0;                                ///< decay of averaged weights, which evaluate and are saved; 0: none
};

/// What is kept so that a run can go on after it ended, and what is done about numbers that are not finite.
struct SafetyOptions {
  std::string checkpoints = {};            ///< folder; "": none
  int64_t every = 0;                       ///< steps between checkpoints; 0: at the end only
  int64_t keep = 2;                        ///< newest checkpoints; 0: all
  int64_t max_file_bytes = 5'000'000'000;  ///< of tensors in one file of a folder; a model with more has numbered ones
  int64_t stop_at = 0;                     ///< end behind this step, with a checkpoint; 0: behind the last
  bool background = true;                  ///< write while training goes on
  std::string resume = {};                 ///< "", "auto" or a checkpoint
  int64_t restarts = 0;                    ///< of the run, after a failure
  std::string not_finite = "stop";         ///< or "skip": the step is counted and left out
  int64_t max_skips = 10;                  ///< in a row, before the run stops after all
};

/// What is told of a run.
struct WatchOptions {
  std::string log = {};
  int64_t eval_every = 0;                   ///< held-out loss every so many steps; 0: at the end only
  std::string trace = {};                   ///< file, or nothing
  int64_t trace_first = 0, trace_last = 0;  ///< 0: as in traced_steps()
  bool profile = false;
};

struct TrainOptions {
  Config model;
  bool vocab_given = false;  ///< else token files say how many tokens there are
  StepOptions step = {};
  UpdateOptions update = {};
  SafetyOptions safety = {};
  WatchOptions watch = {};
  int64_t steps = 800;
  uint64_t seed = 42;
  std::string data = {};    ///< "": the C++ headers of this machine
  bool check_data = false;  ///< read all of it before the first step
  std::string mesh = {}, plan = {};
  std::string save = {};
  bool deferred = true;
  std::string compare = {};  ///< "single", or nothing
};

struct GenerateOptions {
  std::string model;
  std::string tokenizer = {};  ///< "": the one that the model's data had
  std::string prompt;
  int64_t tokens = 400;
  double temperature = 0.8;  ///< 0: the likeliest token
  int64_t top_k = 0;         ///< 0: all
  uint64_t seed = 42;
};

struct PlanOptions {
  Config model;
  StepOptions step = {};
  UpdateOptions update = {};
  std::string mesh = {}, plan = {};
  bool explain = false;
  bool memory = false;
  bool overlap = false, saving = false;  ///< of --memory: see MemoryCase
  int64_t limit = 0;                     ///< bytes of a rank; 0: none
};

struct ReportOptions {
  std::vector<std::string> logs = {};
  std::string output = "report.html";
};

using Options = std::variant<TrainOptions, GenerateOptions, PlanOptions, TokenizeOptions, ReportOptions>;

/// The options of `gpt train`, `gpt generate`, `gpt plan`, `gpt tokenize` or `gpt report`; or the exit code, after help
/// (0) or a message about what cannot be read (1) was printed. Throws ValueError for values that do not fit each other.
std::variant<Options, int> parse_command_line(int argc, char** argv);

}  // namespace gpt
