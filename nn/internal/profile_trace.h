// The trace of all ranks as one file in Chrome's format.
#pragma once
#include <string>

#include <cleave/dist/launch.h>
#include <cleave/nn/internal/profile_recorder.h>

namespace cleave::nn::detail {

/// Collective over `world`; null or simulated: this rank alone.
void write_chrome_trace(const ProfileRecorder& recorder, dist::World* world, const std::string& path);

}  // namespace cleave::nn::detail
