#include <cleave/nn/buffer.h>
#include <cleave/nn/checkpoint.h>
#include <cleave/nn/internal/save_job.h>

#include <limits>

namespace cleave::nn {

using detail::SaveJob;

NamedTensors named_tensors(const ModuleBase& model, TiedNames ties) {
  NamedTensors out;
  auto parameters = ties == TiedNames::all ? model.named_parameters_with_ties() : model.named_parameters();
  for (const auto& [name, p] : parameters) out.emplace_back(name, p.tensor());
  for (const auto& [name, b] : model.named_buffers()) out.emplace_back(name, b.tensor());
  return out;
}

void save_checkpoint(const std::string& folder, const CheckpointContent& content, const SaveOptions& options) {
  SaveJob(folder, content, options, SaveJob::Target::folder, false).advance(true);
}

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  SaveOptions options{.max_file_bytes = std::numeric_limits<int64_t>::max()};
  SaveJob(path, {.groups = {{"tensors", tensors, metadata}}}, options, SaveJob::Target::file, false).advance(true);
}

CheckpointSave save_checkpoint_async(const std::string& folder, const CheckpointContent& content,
                                     const SaveOptions& options) {
  return CheckpointSave(std::make_unique<SaveJob>(folder, content, options, SaveJob::Target::folder, true));
}

CheckpointSave::CheckpointSave(std::unique_ptr<SaveJob> job) : job_(std::move(job)) {}
CheckpointSave::~CheckpointSave() = default;
CheckpointSave::CheckpointSave(CheckpointSave&&) noexcept = default;
CheckpointSave& CheckpointSave::operator=(CheckpointSave&&) noexcept = default;
bool CheckpointSave::poll() { return job_->advance(false); }
void CheckpointSave::wait() { job_->advance(true); }

}  // namespace cleave::nn
