#include "common/formats/peft/check_files.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool Has(const fs::path& directory, const char* file) {
  std::error_code ignored;
  return fs::exists(directory / file, ignored);
}

}  // namespace

absl::StatusOr<LoraCheckFiles> FindLoraCheckFiles(const std::string& directory, bool merged) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "weights cannot be compared with {}: there is no such directory", directory);
  }
  if (Has(directory, "adapter_config.json")) return LoraCheckFiles{.adapter = directory};
  // A model that lacks its weights is damaged, not absent.
  const bool model = Has(directory, "config.json") || Has(directory, "model.safetensors") ||
                     Has(directory, "model.safetensors.index.json");
  if (model && merged) return LoraCheckFiles{.model = directory};
  const fs::path adapter = fs::path(directory) / kAdapterFolder;
  if (Has(adapter, "adapter_config.json")) return LoraCheckFiles{.adapter = adapter.string()};
  if (model) {
    return InvalidArgument(
        "weights cannot be compared with {}: it has a model and no {}, and with "
        "model.lora.merge=false rollouts hold adapters beside the base, which merged weights do "
        "not tell: name a checkpoint with {}, or an adapter",
        directory, kAdapterFolder, kAdapterFolder);
  }
  return MakeStatus(absl::StatusCode::kNotFound,
                    "weights cannot be compared with {}: it has neither model.safetensors nor {}",
                    directory, kAdapterFolder);
}

std::string LoraCheckText(const LoraCheckFiles& files, const std::string& model_dir) {
  if (files.adapter.empty()) return files.model;
  return fmt::format("{} with the adapter of {}", model_dir, files.adapter);
}

}  // namespace tandem
