// Trained models as files: global tensors, so that they do not depend on the mesh.
#pragma once
#include <cleave/nn/checkpoint.h>

#include <memory>
#include <string>

#include "gpt/model.h"

namespace gpt {

/// Throws FileError if nothing can be saved under this path: to be asked before training, not after.
void require_writable(const std::string& path);

/// The model's tensors, and its config in the file's metadata.
cleave::nn::CheckpointGroup model_group(const Gpt& model);

/// The config in the metadata of a file's model. Throws FileError if there is none.
Config config_of(const cleave::nn::Checkpoint& file);

/// Writes the model: into one file, or, if the path ends in a slash or is a folder, as a checkpoint, whose files hold
/// up to `max_file_bytes` each. Every rank calls. Communicates. Throws FileError.
void save_model(const Gpt& model, const std::string& path, int64_t max_file_bytes = 5'000'000'000);

/// The model of such a file or folder, or of the newest of a folder of checkpoints, plain. Every rank calls. Throws
/// FileError for what is missing, incomplete, or has other tensors than its config says.
std::unique_ptr<Gpt> load_model(const std::string& path);

}  // namespace gpt
