// What a run reads of a checkpoint: the controller's state, a rank's training state and a saved
// batch. Digests are made right, so that what lies behind them is read. The first byte chooses.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "common/formats/safetensors.h"
#include "common/formats/training_state.h"
#include "common/types/xxh3.h"
#include "controller/store/batch_file.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/saved_batch.h"
#include "tests/fuzz/scratch_dir.h"
#include "tests/fuzz/target.h"

namespace tandem::fuzz {
namespace {

void ReadControllerState(const ScratchDir& dir, std::string_view text) {
  dir.Write("step_1/controller_state.json", text);
  (void)CheckpointIndex::ReadState(dir.path() + "/step_1");
  (void)CheckpointIndex::OpenReadOnly(dir.path()).FindNewest();
}

void ReadTrainingState(const ScratchDir& dir, std::string_view text) {
  const std::string header(text);
  const auto valid = nlohmann::json::accept(header);
  if (!valid) return;  // it is a text in the file's own header, which must be JSON
  const auto writer = SafetensorsWriter::Create(
      dir.path() + "/" + TrainingStateFileName(0, 1), {{"w/master", DType::kFloat32, {2, 2}}},
      {{kTrainingStateKey, header},
       {kTrainingStateDigestKey, TrainingStateDigest(header.data(), header.size())}});
  const float zeros[4] = {};
  if (!writer.ok() || !(*writer)->Write("w/master", zeros, sizeof(zeros)).ok()) return;
  if (!(*writer)->Finish().ok()) return;
  const auto reader = TrainingStateReader::Open(dir.path(), {{.name = "w", .shape = {2, 2}}}, {});
  if (!reader.ok()) return;
  float rows[4];
  (void)(*reader)->ReadRows("w", TrainingStateReader::Part::kMaster, 0, 2, rows);
}

void ReadSavedBatch(const ScratchDir& dir, std::string_view text) {
  const size_t split = std::min(text.find('\0'), text.size());
  const std::string_view header = text.substr(0, split);
  const std::string_view arrays = text.substr(std::min(split + 1, text.size()));
  const std::string body = std::string(arrays) + std::string(header);
  BatchPreamble preamble;
  std::memcpy(preamble.magic.data(), kBatchMagic, preamble.magic.size());
  preamble.version = kBatchVersion;
  preamble.header_offset = sizeof(preamble) + arrays.size();
  preamble.header_bytes = header.size();
  preamble.file_bytes = sizeof(preamble) + body.size();
  const Xxh3Hash digest = HashXxh3(body.data(), body.size());
  preamble.digest_low = digest.low;
  preamble.digest_high = digest.high;
  preamble.check = XXH3_64bits(&preamble, offsetof(BatchPreamble, check));
  dir.Write("x.batch",
            std::string(reinterpret_cast<const char*>(&preamble), sizeof(preamble)) + body);
  const auto reader = BatchReader::Open(dir.path() + "/x.batch");
  if (!reader.ok()) return;
  for (size_t i = 0; i < (*reader)->size(); ++i) (void)(*reader)->Read(i);
}

}  // namespace
}  // namespace tandem::fuzz

TANDEM_FUZZ_TARGET(checkpoint) {
  static const tandem::fuzz::ScratchDir dir;
  dir.Clear();
  if (input.empty()) return;
  const std::string_view rest = input.substr(1);
  if (input[0] == 'c') tandem::fuzz::ReadControllerState(dir, rest);
  if (input[0] == 't') tandem::fuzz::ReadTrainingState(dir, rest);
  if (input[0] == 'b') tandem::fuzz::ReadSavedBatch(dir, rest);
}
