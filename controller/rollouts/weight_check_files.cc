#include "controller/rollouts/weight_check_files.h"

#include <utility>

#include "common/formats/peft/peft_adapter.h"
#include "controller/store/checkpoint_index.h"

namespace tandem {
namespace {

class FullCheckFiles final : public WeightCheckFiles {
 public:
  explicit FullCheckFiles(CheckFilesOptions options) : options_(std::move(options)) {}

  std::string Find(const std::string& checkpoint) const override {
    if (checkpoint.empty()) return options_.model_dir;
    return options_.exact_export ? CheckpointIndex::HfExport(checkpoint) : "";
  }
  // The trainers read the directory as an HF checkpoint and report what it lacks.
  absl::Status Check(const std::string& /*directory*/) const override { return absl::OkStatus(); }
  std::string Describe(const std::string& directory) const override {
    return directory.empty() ? kTrainersOwnWeights : directory;
  }

 private:
  const CheckFilesOptions options_;
};

class AdapterCheckFiles final : public WeightCheckFiles {
 public:
  AdapterCheckFiles(CheckFilesOptions options, bool merged, std::string adapter_path)
      : options_(std::move(options)), merged_(merged), adapter_path_(std::move(adapter_path)) {}

  std::string Find(const std::string& checkpoint) const override {
    if (checkpoint.empty()) {
      if (!adapter_path_.empty()) return adapter_path_;
      // A new A is random and in no file. Merged, the zero B adds nothing to the model.
      return merged_ ? options_.model_dir : "";
    }
    const std::string exported =
        merged_ && options_.exact_export ? CheckpointIndex::HfExport(checkpoint) : "";
    return exported.empty() ? checkpoint + "/" + kAdapterFolder : exported;
  }
  absl::Status Check(const std::string& directory) const override {
    if (directory.empty()) return absl::OkStatus();
    return FindLoraCheckFiles(directory, merged_).status();
  }
  std::string Describe(const std::string& directory) const override {
    if (directory.empty()) return options_.model_dir + " with the trainers' adapters";
    const auto files = FindLoraCheckFiles(directory, merged_);
    return files.ok() ? LoraCheckText(*files, options_.model_dir) : directory;
  }

 private:
  const CheckFilesOptions options_;
  const bool merged_;
  const std::string adapter_path_;
};

}  // namespace

std::unique_ptr<WeightCheckFiles> MakeFullCheckFiles(CheckFilesOptions options) {
  return std::make_unique<FullCheckFiles>(std::move(options));
}

std::unique_ptr<WeightCheckFiles> MakeAdapterCheckFiles(CheckFilesOptions options,
                                                        bool merged,
                                                        std::string adapter_path) {
  return std::make_unique<AdapterCheckFiles>(std::move(options), merged, std::move(adapter_path));
}

}  // namespace tandem
