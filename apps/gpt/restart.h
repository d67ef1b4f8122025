// gpt train --restarts: a run that is started again after it failed.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace gpt {

/// Calls `attempt(resumed)` in a child process of its own, up to 1 + restarts times, until one ends with 0; returns the
/// last exit code (128 + n for signal n, as shells do). Every attempt but the first is `resumed`. An attempt that ended
/// by itself with an error and left `progress()` (the name of the newest checkpoint, say) as it was would fail again
/// and is not followed by another. Those that were killed within seconds and without progress are followed after 1 s,
/// then 2, 4, and up to 30. SIGINT and SIGTERM are passed on, and end the loop. To be called before the process has
/// threads.
int run_with_restarts(int64_t restarts, const std::function<std::string()>& progress,
                      const std::function<int(bool resumed)>& attempt);

}  // namespace gpt
