#include "common/process/process_identity.h"

#include <fstream>
#include <sstream>
#include <vector>

#include <fmt/format.h>

namespace tandem {
namespace {

// Of the fields of /proc/PID/stat that follow the program's name.
constexpr size_t kState = 0, kStartTime = 19;

}  // namespace

std::string ProcessStart(int64_t pid) {
  if (pid <= 0) return "";
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  // A program's name may hold spaces and parentheses.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream rest(text.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  if (fields.size() <= kStartTime) return "";
  const bool ended = fields[kState] == "Z" || fields[kState] == "X";
  return ended ? "" : fields[kStartTime];
}

}  // namespace tandem
