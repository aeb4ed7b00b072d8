#include "common/process/process_identity.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

namespace tandem {
namespace {

// Of the fields of /proc/PID/stat that follow the program's name.
constexpr size_t kState = 0, kStartTime = 19;

// "pid:[4026531836]", equal in all processes of one namespace; "": it cannot be read.
std::string PidNamespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

// `process`: a folder of /proc.
std::string StartOf(const std::string& process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
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
  const std::string pid_namespace = PidNamespace();
  return ended || pid_namespace.empty() ? ""
                                        : fmt::format("{} {}", pid_namespace, fields[kStartTime]);
}

}  // namespace

std::string ProcessStart(int64_t pid) { return pid <= 0 ? "" : StartOf(std::to_string(pid)); }

std::string OwnProcessStart() { return StartOf("self"); }

bool SamePidNamespace(const std::string& process_start, const std::string& other) {
  const size_t end = process_start.find(' ');
  return end != std::string::npos && other.find(' ') == end &&
         process_start.compare(0, end, other, 0, end) == 0;
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name[0] == '\0' ? "localhost" : name;
}

}  // namespace tandem
