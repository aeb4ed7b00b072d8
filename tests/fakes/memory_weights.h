// A small model's weights in memory: random bits of every pattern, as a source for publishers and
// as the reference of checks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/device/shared_region.h"
#include "common/weights/layout.h"
#include "tests/fakes/whole_tensors.h"
#include "trainer_worker/weight_sync/weight_check.h"

namespace tandem::testing {

// Odd sizes: rows that are not a multiple of 64 bytes, one-row norms, GQA, biases and q/k norms.
inline ModelSpec OddSpec(bool tied) {
  ModelSpec spec;
  spec.model_type = "qwen3";
  spec.vocab_size = 301;
  spec.hidden_size = 40;
  spec.num_layers = 3;
  spec.num_heads = 6;
  spec.num_kv_heads = 2;
  spec.head_dim = 10;
  spec.intermediate_size = 77;
  spec.max_position = 128;
  spec.tie_word_embeddings = tied;
  spec.qkv_bias = !tied;
  spec.qk_norm = true;
  return spec;
}

class MemoryWeights : public WholeTensors, public ExpectedWeights {
 public:
  // `layout` outlives it.
  MemoryWeights(const WeightLayout& layout, uint64_t seed) : layout_(&layout) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (const TensorPlace& place : layout.places()) {
      std::vector<uint64_t> words((Bytes(layout, place) + 7) / 8);
      for (uint64_t& word : words) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word = state;
      }
      index_[place.name] = tensors_.size();
      tensors_.push_back(std::move(words));
    }
  }

  absl::StatusOr<const void*> Gather(const TensorPlace& place) override {
    gathered_.push_back(place.name);
    if (place.name == fail_at) return Internal("the shard of {} is gone", place.name);
    return static_cast<const void*>(tensor(place.name));
  }

  absl::StatusOr<const void*> Rows(const TensorRows& rows) override {
    return static_cast<const void*>(tensor(rows.place->name) + rows.row * rows.row_bytes);
  }
  absl::StatusOr<std::vector<int64_t>> ExchangeCounts(int64_t mine) override {
    return std::vector<int64_t>{mine};
  }

  absl::StatusOr<std::vector<Digest>> Digests() override {
    std::vector<Digest> digests;
    for (const TensorPlace& place : layout_->places()) {
      digests.push_back(DigestOf(tensor(place.name), Bytes(*layout_, place)));
    }
    return digests;
  }

  static int64_t Bytes(const WeightLayout& layout, const TensorPlace& place) {
    return place.rows() * place.cols() * static_cast<int64_t>(DTypeBytes(layout.dtype()));
  }
  std::byte* tensor(const std::string& name) {
    const size_t at = index_.at(name);
    return region_ == nullptr ? reinterpret_cast<std::byte*>(tensors_[at].data())
                              : region_->data() + shared_.offsets[at];
  }
  // From now on the tensors lie in shared memory, side by side, as a single rank's shard has them.
  MemoryWeights& Share() {
    int64_t bytes = 0;
    for (const TensorPlace& place : layout_->places()) {
      shared_.offsets.push_back(bytes);
      bytes += Bytes(*layout_, place);
    }
    auto region = SharedRegion::Create("shard", bytes, nullptr, Location::kDevice,
                                       SharedRegion::Pages::kSmall);
    if (!region.ok()) CheckFailed("memory for a shard", __FILE__, __LINE__, "");
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const auto* rows = reinterpret_cast<const std::byte*>(tensors_[t].data());
      std::copy_n(rows, Bytes(*layout_, layout_->places()[t]),
                  (*region)->data() + shared_.offsets[t]);
    }
    region_ = *std::move(region);
    shared_.shard = {region_->data(), region_->bytes(), region_->fd()};
    return *this;
  }
  const SharedTensors* shared() const override { return region_ == nullptr ? nullptr : &shared_; }
  const std::vector<std::string>& gathered() const { return gathered_; }

  std::string fail_at;  // Gather fails there

 private:
  const WeightLayout* layout_;
  std::vector<std::vector<uint64_t>> tensors_;  // in the layout's order
  std::unordered_map<std::string, size_t> index_;
  std::unique_ptr<SharedRegion> region_;
  SharedTensors shared_;
  std::vector<std::string> gathered_;
};

}  // namespace tandem::testing
