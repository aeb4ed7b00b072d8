// What a launcher or an agent tells on stderr.
#pragma once

#include <string>
#include <string_view>

#include "deploy/launcher/process_table.h"
#include "deploy/launcher/supervisor.h"

namespace tandem {

inline constexpr int kBlameLines = 12;  // of a log, where a process is to blame

// "launcher: text". Does not fail when stderr is closed.
void PrintAs(std::string_view who, const std::string& text);

// Prints what a kSay says, and the last lines of the process's log where it blames one.
void PrintSay(std::string_view who, const Action& action, const ProcessTable& table);

}  // namespace tandem
