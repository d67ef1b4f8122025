// Whether operations are recorded on the tape, per rank.
#pragma once

namespace cleave {

bool grad_enabled();

/// Records nothing while it lives.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// While it lives, nodes that are recorded keep no tensors: they tell what depends on what, and cannot run.
class RecordOnly {
 public:
  RecordOnly();
  ~RecordOnly();
  RecordOnly(const RecordOnly&) = delete;
  RecordOnly& operator=(const RecordOnly&) = delete;

 private:
  bool before_;
};
bool saving_enabled();

/// Records again inside a NoGrad scope.
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool before_;
};

}  // namespace cleave
