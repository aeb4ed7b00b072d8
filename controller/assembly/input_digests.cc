#include "controller/assembly/input_digests.h"

#include <algorithm>
#include <iterator>
#include <string>

#include <fmt/ranges.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/formats/digest_cache.h"
#include "common/formats/file_digest.h"
#include "common/formats/hf_checkpoint.h"
#include "common/process/cores.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// More threads than that wait for the disk, or for memory.
constexpr int64_t kMostThreads = 8;

absl::StatusOr<std::vector<PinnedInput>> Files(const v1::Config& config, const ModelSpec& spec) {
  std::vector<PinnedInput> files;
  for (const std::string& path : config.data().train_files()) {
    files.push_back({.key = "data.train_files", .path = path});
  }
  for (const std::string& path : config.data().val_files()) {
    files.push_back({.key = "data.val_files", .path = path});
  }
  const std::string& model = config.model().path();
  files.push_back({.key = "model.path", .path = model + "/config.json"});
  TANDEM_ASSIGN_OR_RETURN(const auto weights, HfCheckpoint::Open(model, spec));
  for (const std::string& path : weights->files()) {
    files.push_back({.key = "model.path", .path = path});
  }
  return files;
}

PinnedInput PinText(const std::string& key, const std::string& path, const std::string& text) {
  const FileDigest digest = DigestText(text);
  return {.key = key, .path = path, .bytes = digest.bytes, .digest = digest.hex};
}

}  // namespace

absl::StatusOr<std::vector<PinnedInput>> PinInputs(const v1::Config& config,
                                                   const RunInputs& inputs,
                                                   RememberDigests remember) {
  const Instant begin = RealClock().Now();
  TANDEM_ASSIGN_OR_RETURN(std::vector<PinnedInput> pinned, Files(config, inputs.spec));
  std::vector<std::string> paths;
  for (const PinnedInput& file : pinned) paths.push_back(file.path);
  const auto threads = std::min<int64_t>(kMostThreads, std::ssize(AllowedCores()));
  DigestCache cache(config.cluster().run_dir() + "/input_digests.json");
  TANDEM_ASSIGN_OR_RETURN(const std::vector<FileDigest> digests,
                          cache.Digest(paths, static_cast<int>(threads)));
  if (remember == RememberDigests::kYes) {
    const absl::Status saved = cache.Save();
    if (!saved.ok()) LogWarn("digests are not remembered: {}", std::string(saved.message()));
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < pinned.size(); ++i) {
    pinned[i].bytes = digests[i].bytes;
    pinned[i].digest = digests[i].hex;
    bytes += digests[i].bytes;
  }
  const Tokenizer& tokenizer = *inputs.tokenizer;
  const std::string& model = config.model().path();
  pinned.push_back(PinText("model.path (tokenizer)", model, tokenizer.digest()));
  pinned.push_back(PinText("model.path (chat template)", tokenizer.chat_template_file(),
                           tokenizer.chat_template().value_or("")));
  pinned.push_back(PinText("model.path (ids that end a response)", model,
                           fmt::format("{}", fmt::join(tokenizer.eos_token_ids(), ","))));
  LogInfo("digests of {} input files, {} MiB, took {:.1f} s", paths.size(), bytes >> 20,
          absl::ToDoubleSeconds(RealClock().Now() - begin));
  return pinned;
}

}  // namespace tandem
