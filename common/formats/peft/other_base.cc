#include "common/formats/peft/other_base.h"

#include <filesystem>

#include <fmt/format.h>

namespace tandem {
namespace {

constexpr char kCached[] = "models--";

}  // namespace

std::string BaseName(const std::string& base) {
  std::filesystem::path path(base);
  if (!path.has_filename()) path = path.parent_path();
  const std::filesystem::path cached = path.parent_path().parent_path().filename();
  if (path.parent_path().filename() != "snapshots" || !cached.string().starts_with(kCached)) {
    return path.filename();
  }
  const std::string name = cached.string().substr(sizeof(kCached) - 1);
  const size_t org = name.find("--");
  return org == std::string::npos ? name : name.substr(org + 2);
}

std::string OtherBase(const PeftConfig& config,
                      const std::string& adapter,
                      const std::string& base) {
  const std::string& named = config.base_model;
  if (named.empty() || BaseName(named) == BaseName(base)) return "";
  return fmt::format("{} names {} as its base, and this is {}: only names and shapes are compared",
                     adapter, named, base);
}

}  // namespace tandem
