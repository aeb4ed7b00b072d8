#include "controller/cli/local_commands.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "common/base/status.h"
#include "common/config/check.h"
#include "common/config/loaded_config.h"
#include "common/formats/gguf/gguf_import.h"
#include "common/formats/hf_checkpoint.h"
#include "common/model_spec/model_spec.h"
#include "common/text/tokenizer.h"
#include "common/weights/layout.h"
#include "common/weights/manifest.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/data/datasets.h"
#include "controller/data/run_data.h"
#include "controller/plan/disk_plan.h"
#include "controller/plan/lora_checks.h"
#include "controller/report/format.h"
#include "controller/reward/check_reward.h"
#include "controller/reward/composite_reward.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

absl::Status ImportGgufCommand(const std::string& gguf, const std::string& dir, std::ostream& out) {
  TANDEM_RETURN_IF_ERROR(ImportGguf(gguf, dir));
  out << "wrote " << dir << "\n";
  return absl::OkStatus();
}

absl::Status MakeDataCommand(const std::string& task,
                             const std::string& dir,
                             const AdditionOptions& options,
                             std::ostream& out) {
  if (task != "addition") return InvalidArgument("unknown task {} (known: addition)", task);
  TANDEM_ASSIGN_OR_RETURN(const AdditionFiles files, MakeAddition(dir, options));
  out << fmt::format("{}: {} prompts\n", files.train_path, files.train_rows);
  if (!files.val_path.empty()) {
    out << fmt::format("{}: {} prompts, none of whose pairs is trained on\n", files.val_path,
                       files.val_rows);
  }
  return absl::OkStatus();
}

absl::Status ConvertDataCommand(const std::string& format,
                                const std::string& input,
                                const std::string& output,
                                std::ostream& out) {
  if (format != "gsm8k" && format != "math") {
    return InvalidArgument("unknown format {} (known: gsm8k, math)", format);
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t rows, format == "math" ? ConvertMath(input, output)
                                                               : ConvertGsm8k(input, output));
  out << fmt::format("{}: {} prompts\n", output, rows);
  return absl::OkStatus();
}

absl::Status ConfigExplainCommand(const std::string& key, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ExplainConfig(key));
  out << text;
  return absl::OkStatus();
}

absl::Status ConfigMarkdownCommand(std::ostream& out) {
  out << ConfigMarkdown();
  return absl::OkStatus();
}

namespace {

std::string RowsText(const LoadedPrompts& prompts) {
  return fmt::format("{} prompts of {} rows ({} too long, {} cut)", prompts.prompts.size(),
                     prompts.rows, prompts.filtered, prompts.truncated);
}

// Reads the data as a run does, and tells its rows, and what the run will write.
absl::Status CheckData(const v1::Config& config, const ModelSpec& model, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(config.model().path()));
  TANDEM_RETURN_IF_ERROR(CheckVocabulary(config.model().path(), model, tokenizer->vocab_size()));
  const v1::Tls& tls = config.cluster().tls();
  TANDEM_ASSIGN_OR_RETURN(
      const auto reward,
      MakeReward(config.reward(), {.cert = tls.cert(), .key = tls.key(), .ca = tls.ca()}));
  TANDEM_ASSIGN_OR_RETURN(const RunData data, LoadRunData(config, *tokenizer, *reward));
  out << "# data.train_files: " << RowsText(data.train) << "\n";
  if (!config.data().val_files().empty()) {
    out << "# data.val_files: " << RowsText(data.validation) << "\n";
  }
  const auto rows = static_cast<int64_t>(data.train.prompts.size());
  TANDEM_ASSIGN_OR_RETURN(const DiskPlan plan, PlanDisk(model, config, PlannedSteps(config, rows)));
  for (const DiskLine& line : DiskPlanText(plan)) {
    out << "# " << (line.fits ? "" : "warning: ") << line.text << "\n";
  }
  const absl::Status fits = CheckDiskPlan(plan);
  if (!fits.ok()) out << "# warning: " << std::string(fits.message()) << "\n";
  return absl::OkStatus();
}

}  // namespace

absl::Status ConfigCheckCommand(const std::string& path,
                                const std::vector<std::string>& overrides,
                                FailedAt* failed_at,
                                std::ostream& out) {
  *failed_at = FailedAt::kConfig;
  TANDEM_ASSIGN_OR_RETURN(LoadedConfig loaded, LoadConfig(path, overrides));
  const absl::Status checked =
      CheckConfig(loaded, std::array<ConfigCheck, 2>{CheckAdvantageEstimator, CheckReward});
  for (const std::string& notice : loaded.notices) out << "# " << notice << "\n";
  TANDEM_RETURN_IF_ERROR(checked);
  *failed_at = FailedAt::kInputs;
  TANDEM_ASSIGN_OR_RETURN(
      const ModelSpec model,
      CheckModel(loaded.config.model().path(), loaded.config.rollout().max_model_len()));
  TANDEM_RETURN_IF_ERROR(CheckLoraInputs(loaded.config, model));
  if (const std::string warning = LoraWarning(loaded.config); !warning.empty()) {
    out << "# warning: " << warning << "\n";
  }
  TANDEM_RETURN_IF_ERROR(CheckData(loaded.config, model, out));
  out << ConfigToYaml(loaded.config);
  return absl::OkStatus();
}

absl::Status ParityCommand(const ParityCommandOptions& options) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Internal("cannot find this program's folder: {}", error.message());
  const std::string program = self.parent_path() / "tandem-parity";
  std::vector<std::string> arguments = {program,
                                        "--model",
                                        options.model_dir,
                                        "--tokens",
                                        std::to_string(options.tokens),
                                        "--response-length",
                                        std::to_string(options.response_length),
                                        "--max-num-seqs",
                                        std::to_string(options.max_num_seqs),
                                        "--seed",
                                        std::to_string(options.seed)};
  if (options.threads > 0) {
    arguments.insert(arguments.end(), {"--threads", std::to_string(options.threads)});
  }
  if (options.json) arguments.push_back("--json");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return MakeStatus(
      absl::StatusCode::kNotFound,
      "cannot start {}: {}; ./deploy/build.sh puts it in the same folder as tandemctl", program,
      std::strerror(errno));
}

namespace {

constexpr char kHead[] = "lm_head.weight";
constexpr char kEmbedding[] = "model.embed_tokens.weight";

// The offset of the stored tensor in bytes from the start of a full storage.
int64_t StorageOffset(const WeightLayout& layout, const TensorPlace& place) {
  return layout.group_offset(place.layer) + place.offset;
}

std::string Table(const ModelSpec& spec, const WeightLayout& layout) {
  std::vector<std::vector<std::string>> rows = {
      {"tensor", "dtype", "shape", "bytes", "layer", "stored in", "from row", "form", "offset"}};
  const Manifest manifest = ManifestOf(layout);
  for (size_t t = 0; t < manifest.size(); ++t) {
    const TensorPlace& place = layout.places()[t];
    rows.push_back({manifest[t].name, DTypeName(manifest[t].dtype), ShapeText(manifest[t].shape),
                    std::to_string(manifest[t].bytes()),
                    place.layer < 0 ? "-" : std::to_string(place.layer), place.stored_as,
                    std::to_string(place.fused_row), place.packed ? "packed" : "dense",
                    std::to_string(StorageOffset(layout, place))});
  }
  std::string text = FormatTable(rows);
  if (spec.tie_word_embeddings) {
    text += fmt::format("{} is tied to {}: the same bytes, counted once\n", kHead, kEmbedding);
  }
  return text +
         fmt::format("{} tensors, {} bytes; a rollout's storage has {} bytes, padding included\n",
                     manifest.size(), ManifestBytes(manifest), layout.total_bytes());
}

nlohmann::ordered_json LayoutJson(const ModelSpec& spec, const WeightLayout& layout) {
  nlohmann::ordered_json json;
  json["tensors"] = nlohmann::ordered_json::array();
  const Manifest manifest = ManifestOf(layout);
  for (size_t t = 0; t < manifest.size(); ++t) {
    const TensorPlace& place = layout.places()[t];
    json["tensors"].push_back({{"name", manifest[t].name},
                               {"dtype", DTypeName(manifest[t].dtype)},
                               {"shape", manifest[t].shape},
                               {"bytes", manifest[t].bytes()},
                               {"layer", place.layer},
                               {"stored_in", place.stored_as},
                               {"row", place.fused_row},
                               {"packed", place.packed},
                               {"offset", StorageOffset(layout, place)}});
  }
  json["tied"] = nlohmann::ordered_json::object();
  if (spec.tie_word_embeddings) json["tied"][kHead] = kEmbedding;
  json["total"] = {{"tensors", manifest.size()},
                   {"bytes", ManifestBytes(manifest)},
                   {"storage_bytes", layout.total_bytes()}};
  return json;
}

}  // namespace

absl::Status WeightsManifestCommand(const WeightsManifestOptions& options, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec spec, LoadModelSpec(options.model_dir));
  const DType dtype = options.dtype == "float32" ? DType::kFloat32 : DType::kBFloat16;
  const WeightLayout layout = WeightLayout::Build(spec, dtype);
  out << (options.json ? LayoutJson(spec, layout).dump(2) + "\n" : Table(spec, layout));
  return absl::OkStatus();
}

}  // namespace tandem
