#include "controller/data/pinned_inputs.h"

#include <catch2/catch.hpp>

#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

PinnedInput Pinned(const std::string& key, const std::string& path, const std::string& digest) {
  return {.key = key, .path = path, .bytes = 10, .digest = digest};
}

const std::vector<PinnedInput> kBefore = {Pinned("data.train_files", "/a/one.jsonl", "11"),
                                          Pinned("data.train_files", "/a/two.jsonl", "22"),
                                          Pinned("data.val_files", "/a/val.jsonl", "33"),
                                          Pinned("model.path", "/m/model.safetensors", "44"),
                                          Pinned("model.path (tokenizer)", "/m", "55")};

}  // namespace

TEST_CASE("Files that were moved are the same inputs", "[pinned_inputs]") {
  std::vector<PinnedInput> now = kBefore;
  for (PinnedInput& input : now) input.path = "/elsewhere" + input.path;
  REQUIRE(ChangedInputs(kBefore, now).empty());
  REQUIRE(KeysOfEqualInputs(kBefore, now) ==
          std::set<std::string>{"data.train_files", "data.val_files", "model.path"});
}

TEST_CASE("Another content is named with digest and size, then and now", "[pinned_inputs]") {
  std::vector<PinnedInput> now = kBefore;
  now[1] = {.key = "data.train_files", .path = "/b/two.jsonl", .bytes = 12, .digest = "2f"};
  const std::vector<std::string> lines = ChangedInputs(kBefore, now);
  REQUIRE(lines.size() == 1);
  REQUIRE(lines[0] ==
          "data.train_files: /b/two.jsonl has another content: then 10 bytes, digest 22 in "
          "/a/two.jsonl, now 12 bytes, digest 2f");
  REQUIRE(KeysOfEqualInputs(kBefore, now) == std::set<std::string>{"data.val_files", "model.path"});
}

TEST_CASE("A changed part of the model makes its key changed", "[pinned_inputs]") {
  std::vector<PinnedInput> now = kBefore;
  now[4].digest = "5f";
  REQUIRE(ChangedInputs(kBefore, now).size() == 1);
  REQUIRE(Has(ChangedInputs(kBefore, now)[0], "model.path (tokenizer): "));
  REQUIRE_FALSE(KeysOfEqualInputs(kBefore, now).contains("model.path"));
}

TEST_CASE("Data files in another order, one more and one less are other inputs",
          "[pinned_inputs]") {
  std::vector<PinnedInput> now = kBefore;
  std::swap(now[0], now[1]);
  REQUIRE(ChangedInputs(kBefore, now).size() == 2);
  now = kBefore;
  now.push_back(Pinned("data.train_files", "/a/three.jsonl", "66"));
  REQUIRE(Has(ChangedInputs(kBefore, now).at(0), ") is used now"));
  REQUIRE(Has(ChangedInputs(now, kBefore).at(0), ") was used then"));
}

TEST_CASE("Validation that begins or ends with a resume is no other input", "[pinned_inputs]") {
  std::vector<PinnedInput> now = kBefore;
  now.erase(now.begin() + 2);
  REQUIRE(ChangedInputs(kBefore, now).empty());
  REQUIRE(ChangedInputs(now, kBefore).empty());
  now = kBefore;
  now[2].digest = "3f";
  REQUIRE(ChangedInputs(kBefore, now).size() == 1);
}

}  // namespace tandem
