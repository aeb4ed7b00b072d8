#include "deploy/launcher/messages.h"

#include <cstdio>

#include <fmt/format.h>

namespace tandem {

// fmt::print would throw when stderr is closed.
void PrintAs(std::string_view who, const std::string& text) {
  std::fputs(fmt::format("{}: {}\n", who, text).c_str(), stderr);
}

void PrintSay(std::string_view who, const Action& action, const ProcessTable& table) {
  PrintAs(who, action.text);
  if (!action.blame) return;
  const std::string path = LogPath(table.plan(), action.id);
  const std::string last = table.LastLogLines(action.id, kBlameLines);
  if (!last.empty())
    std::fputs(fmt::format("---- last lines of {}\n{}----\n", path, last).c_str(), stderr);
}

}  // namespace tandem
