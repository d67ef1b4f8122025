// gpt report: one page about one or more runs.
#pragma once
#include <string>
#include <vector>

#include "gpt/run_log.h"

namespace gpt {

/// A page of HTML that needs nothing else: a table of the runs; loss with held-out points and outliers, gradient norm,
/// tokens/s, memory by rank, bytes communicated by axis, learning rate, loss scale where there is one; in the reader's
/// light or dark. Runs share the charts, each in a color of its own.
std::string report_html(const std::vector<RunLog>& runs);

/// Reads the logs and writes the page; logs of one name are called by their paths. Throws FileError and ValueError, see
/// `read_run_log`, and ValueError rather than write over a log.
void write_report(const std::vector<std::string>& logs, const std::string& path);

}  // namespace gpt
