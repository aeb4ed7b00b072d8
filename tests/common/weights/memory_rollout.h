// A rollout's weights in memory, and the calls that read them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/process/threads.h"
#include "rollout_worker/weights/update_transaction.h"
#include "tests/fakes/memory_weights.h"
#include "trainer_worker/weight_sync/weight_check.h"

namespace tandem::testing {

// A storage that begins as fresh pages do, and its receiver.
struct MemoryRollout {
  explicit MemoryRollout(const WeightLayout& l)
      : layout(&l),
        storage(l.total_bytes()),
        receiver(CreateCpuStorageOps(&l, storage.data(), std::make_shared<ThreadPool>(2))) {}

  // Byte for byte, and by digest.
  bool Holds(MemoryWeights& weights) const {
    const std::vector<Digest> held = receiver.Digests().value();
    for (size_t t = 0; t < held.size(); ++t) {
      const TensorPlace& place = layout->places()[t];
      const int64_t bytes = MemoryWeights::Bytes(*layout, place);
      std::vector<std::byte> rows(bytes);
      layout->ReadRows(storage.data() + layout->group_offset(place.layer), place, 0, place.rows(),
                       rows.data());
      if (bytes > 0 && memcmp(rows.data(), weights.tensor(place.name), bytes) != 0) return false;
      if (!(held[t] == DigestOf(rows.data(), bytes))) return false;
    }
    return true;
  }

  const WeightLayout* layout;
  std::vector<std::byte> storage;
  UpdateTransaction receiver;
};

class MemoryReader : public WeightReader {
 public:
  explicit MemoryReader(const MemoryRollout& rollout) : rollout_(rollout) {}
  absl::StatusOr<HeldWeights> Digests() override {
    HeldWeights held = {rollout_.receiver.version(), ManifestOf(*rollout_.layout),
                        rollout_.receiver.Digests().value()};
    if (drop_first) {
      held.manifest.erase(held.manifest.begin());
      held.digests.erase(held.digests.begin());
    }
    if (!add.empty()) {
      held.manifest.push_back({add, rollout_.layout->dtype(), {1}});
      held.digests.push_back({});
    }
    if (damage >= 0) held.digests[static_cast<size_t>(damage)] = {};
    return held;
  }
  absl::StatusOr<std::string> Read(const std::string& name, int64_t row, int64_t rows) override {
    const WeightLayout& layout = *rollout_.layout;
    TANDEM_ASSIGN_OR_RETURN(const TensorPlace* place, layout.Find(name));
    std::string data(rows * place->cols() * DTypeBytes(layout.dtype()), '\0');
    layout.ReadRows(rollout_.storage.data() + layout.group_offset(place->layer), *place, row, rows,
                    data.data());
    return data;
  }
  bool drop_first = false;
  std::string add;
  int64_t damage = -1;  // the tensor whose digest is not that of its elements

 private:
  const MemoryRollout& rollout_;
};

}  // namespace tandem::testing
