// The layout against the list of HF tensors and against every byte of the storage, both ways.
#include "common/weights/layout.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <catch2/catch.hpp>

#include "common/memory/memory_formulas.h"
#include "common/ops/cpu/packed_weight.h"
#include "common/weights/manifest.h"
#include "tests/common/weights/layout_zoo.h"

namespace tandem {
namespace {

using testing::LayoutZoo;

// Bytes that tell their position: no two neighbours, rows or tensors look alike, none is zero.
std::vector<std::byte> CountingBytes(int64_t bytes, int64_t seed) {
  std::vector<std::byte> pattern(bytes);
  for (int64_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<std::byte>((i * 7 + i / 251 + seed * 31) % 255 + 1);
  }
  return pattern;
}

int64_t BytesOfPlace(const WeightLayout& layout, const TensorPlace& place) {
  return place.rows() * place.cols() * static_cast<int64_t>(DTypeBytes(layout.dtype()));
}

// How many times each byte of a full storage is written when every tensor is, in pieces of
// `piece_rows`. A byte counts as written where a zeroed group changes.
std::vector<int> Writes(const WeightLayout& layout, int64_t piece_rows) {
  std::vector<int> writes(layout.total_bytes());
  std::vector<std::byte> group;
  int64_t seed = 0;
  for (const TensorPlace& place : layout.places()) {
    const int64_t group_bytes = place.layer < 0 ? layout.global_bytes() : layout.layer_bytes();
    group.assign(group_bytes, std::byte{0});
    const std::vector<std::byte> source = CountingBytes(BytesOfPlace(layout, place), ++seed);
    const int64_t row_bytes = place.cols() * static_cast<int64_t>(DTypeBytes(layout.dtype()));
    for (int64_t row = 0; row < place.rows(); row += piece_rows) {
      layout.WriteRows(group.data(), place, row, std::min(piece_rows, place.rows() - row),
                       source.data() + row * row_bytes);
    }
    int64_t written = 0;
    for (int64_t i = 0; i < group_bytes; ++i) {
      if (group[i] == std::byte{0}) continue;
      ++written;
      ++writes[layout.group_offset(place.layer) + i];
    }
    INFO(place.name);
    // As many destinations as source bytes, so no two bytes went to one.
    REQUIRE(written == BytesOfPlace(layout, place));
    std::vector<std::byte> back(source.size());
    layout.ReadRows(group.data(), place, 0, place.rows(), back.data());
    REQUIRE(std::equal(back.begin(), back.end(), source.begin()));
  }
  return writes;
}

}  // namespace

TEST_CASE("W2: the manifest has every HF tensor once, in order, and nothing else") {
  for (const testing::ZooModel& model : LayoutZoo()) {
    INFO(model.name);
    const WeightLayout layout = WeightLayout::Build(model.spec, model.dtype);
    const std::vector<TensorSpec> tensors = HfTensors(model.spec);
    const Manifest manifest = ManifestOf(layout);
    REQUIRE(manifest.size() == tensors.size());
    std::set<std::string> names;
    for (size_t t = 0; t < tensors.size(); ++t) {
      REQUIRE(manifest[t].name == tensors[t].name);
      REQUIRE(manifest[t].shape == tensors[t].shape);
      REQUIRE(manifest[t].dtype == model.dtype);
      REQUIRE(names.insert(tensors[t].name).second);
      REQUIRE(std::string(layout.places()[t].stored_as) != "");
    }
    REQUIRE(names.count("lm_head.weight") == (model.spec.tie_word_embeddings ? 0 : 1));
    REQUIRE(ManifestBytes(manifest) ==
            model.spec.parameters() * static_cast<int64_t>(DTypeBytes(model.dtype)));
    REQUIRE(MatchManifest(layout, manifest).ok());
  }
}

TEST_CASE("W2: every byte of the storage is written exactly once or is padding") {
  for (const testing::ZooModel& model : LayoutZoo()) {
    const WeightLayout layout = WeightLayout::Build(model.spec, model.dtype);
    for (const int64_t piece_rows : {int64_t{1}, int64_t{16}, int64_t{1} << 40}) {
      INFO(model.name << ", " << piece_rows << " rows at a time");
      const std::vector<int> writes = Writes(layout, piece_rows);
      REQUIRE(std::count(writes.begin(), writes.end(), 1) == ManifestBytes(ManifestOf(layout)));
      REQUIRE(std::count_if(writes.begin(), writes.end(), [](int n) { return n > 1; }) == 0);
    }
  }
}

TEST_CASE("rows of no bytes need no memory on the other side", "[weights][layout]") {
  for (const testing::ZooModel& model : LayoutZoo()) {
    INFO(model.name);
    const WeightLayout layout =
        WeightLayout::Build(model.spec, model.dtype, WeightFormat::kRowMajor);
    std::vector<std::byte> storage(layout.total_bytes());
    for (const TensorPlace& place : layout.places()) {
      const int64_t rows = place.cols() == 0 ? place.rows() : 0;
      std::byte* const group = storage.data() + layout.group_offset(place.layer);
      layout.WriteRows(group, place, 0, rows, nullptr);
      layout.ReadRows(group, place, 0, rows, nullptr);
    }
    REQUIRE(
        std::all_of(storage.begin(), storage.end(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_CASE("W2: fused tensors lie one below the other and a tied head is the embedding") {
  for (const testing::ZooModel& model : LayoutZoo()) {
    INFO(model.name);
    const WeightLayout layout = WeightLayout::Build(model.spec, model.dtype);
    const std::string layer = "model.layers.0.";
    const auto place = [&](const std::string& name) { return **layout.Find(layer + name); };
    for (const char* kind : {"weight", "bias"}) {
      if (kind[0] == 'b' && !model.spec.qkv_bias) continue;
      const TensorPlace q = place(std::string("self_attn.q_proj.") + kind);
      const TensorPlace k = place(std::string("self_attn.k_proj.") + kind);
      const TensorPlace v = place(std::string("self_attn.v_proj.") + kind);
      REQUIRE((q.offset == k.offset && k.offset == v.offset));
      REQUIRE(q.fused_row == 0);
      REQUIRE(k.fused_row == q.rows());
      REQUIRE(v.fused_row == q.rows() + k.rows());
      REQUIRE(std::string(v.stored_as) == (kind[0] == 'b' ? "qkv_bias" : "qkv"));
    }
    REQUIRE(place("mlp.up_proj.weight").fused_row == model.spec.intermediate_size);
    REQUIRE(place("mlp.up_proj.weight").offset == place("mlp.gate_proj.weight").offset);
    const GlobalOffsets& at = layout.global_offsets();
    REQUIRE((at.head == at.embedding) == model.spec.tie_word_embeddings);
  }
}

TEST_CASE("The planned bytes of weights are those of the layout", "[weights][layout]") {
  for (const testing::ZooModel& model : LayoutZoo()) {
    INFO(model.name);
    const auto element_bytes = static_cast<int64_t>(DTypeBytes(model.dtype));
    const WeightLayout layout = WeightLayout::Build(model.spec, model.dtype);
    REQUIRE(layout.global_bytes() == GlobalWeightBytes(model.spec, element_bytes));
    REQUIRE(layout.layer_bytes() == LayerWeightBytes(model.spec, element_bytes));
    REQUIRE(layout.total_bytes() == WeightBytes(model.spec, element_bytes));
    REQUIRE(layout.group_elements(-1) == GlobalParameters(model.spec));
    REQUIRE(layout.group_elements(0) == LayerParameters(model.spec));
  }
}

TEST_CASE("A packed weight has whole panels", "[weights][layout]") {
  REQUIRE(PackedBytes(17, 33, DType::kBFloat16) == 32 * 64 * 2);
  REQUIRE(PackedBytes(17, 33, DType::kFloat32) == 32 * 33 * 4);
}

}  // namespace tandem
