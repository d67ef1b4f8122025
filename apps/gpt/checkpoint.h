// Trained models as files: global tensors, so that they do not depend on the mesh.
#pragma once
#include <cleave/dist/launch.h>

#include <memory>
#include <string>

#include "gpt/model.h"

namespace gpt {

/// Throws FileError if no file can be made at this path: to be asked before training, not after.
void require_writable(const std::string& path);

/// Writes the model's parameters and its config; rank 0 writes, every rank calls. Communicates. Throws FileError.
void save_model(const cleave::dist::World& world, const Gpt& model, const std::string& path);

/// The model of such a file, plain, on this rank. Throws FileError for a file that is missing, incomplete, or whose
/// tensors are not those of its config.
std::unique_ptr<Gpt> load_model(const std::string& path);

}  // namespace gpt
