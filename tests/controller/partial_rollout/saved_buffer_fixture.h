// A checkpoint with a rollout buffer of finished, carried and fresh samples.
#pragma once

#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/formats/files.h"
#include "common/types/xxh3.h"
#include "tests/controller/partial_rollout/buffer_run.h"

namespace tandem::testing {

inline const Prompt* RowOf(uint64_t row) {
  static std::map<uint64_t, Prompt> rows;
  if (row >= 100) return nullptr;
  rows[row] = SomePrompt(row);
  return &rows[row];
}

// A buffer in the middle: finished, carried and fresh samples, of two weight versions.
struct SavedBufferFixture {
  SavedBufferFixture() {
    run.lengths = [](uint64_t id) { return id % 3 == 0 ? 2 : 20; };
    REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
    run.RunRound({.step = 1, .version = 1, .cap = 4});
    REQUIRE(run.buffer->Add({SomePrompt(3, 2)}).ok());
    run.RunRound({.step = 2, .version = 2, .groups = 2, .cap = 3});
    REQUIRE(run.buffer->Save(checkpoint(), kStep).ok());
  }

  std::string checkpoint() const { return run.dir.path() / "step_2"; }
  std::string lines() const { return checkpoint() + "/partial_pool/pool.jsonl"; }
  std::string tokens() const { return checkpoint() + "/partial_pool/tokens.bin"; }
  static std::string Bytes(const std::string& path) { return ReadWholeFile(path).value(); }
  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  // What loading says to a run with these options. A buffer that refuses is as it was.
  absl::Status Loaded(const BufferOptions& options, const DataRows& rows = RowOf) const {
    const BufferRun other(options);
    REQUIRE(other.buffer->Add({SomePrompt(77)}).ok());
    const absl::Status loaded = other.buffer->Load(checkpoint(), rows, kStep);
    REQUIRE(std::ssize(other.buffer->state().groups) == (loaded.ok() ? 3 : 1));
    if (!loaded.ok()) {
      REQUIRE(other.Begin({.step = 1})->front().prompt == SomePrompt(77).tokens);
    }
    return loaded;
  }
  absl::Status Loaded() const { return Loaded(run.options); }

  // The buffer's lines with `now` for the first `before`, and a digest that is right.
  absl::Status WithLine(const std::string& before, const std::string& now) const {
    const std::string whole = Bytes(lines());
    std::string text = whole.substr(0, whole.rfind('\n', whole.size() - 2) + 1);
    const size_t at = text.find(before);
    REQUIRE(at != std::string::npos);
    text.replace(at, before.size(), now);
    Seal(text);
    Write(lines(), text);
    const absl::Status loaded = Loaded();
    Write(lines(), whole);
    return loaded;
  }
  static void Seal(std::string& text) {
    text += fmt::format("{{\"xxh3\":\"{}\"}}\n", HashXxh3(text.data(), text.size()).Hex());
  }
  // The first value of tokens.bin replaced, all digests right.
  absl::Status WithFirstToken(int32_t id) const {
    const std::string original = Bytes(tokens());
    std::string bytes = original;
    const auto hex = [&] { return HashXxh3(bytes.data(), bytes.size()).Hex(); };
    const std::string before = hex();
    std::memcpy(bytes.data(), &id, sizeof(id));
    Write(tokens(), bytes);
    const absl::Status loaded = WithLine(before, hex());
    Write(tokens(), original);
    return loaded;
  }

  BufferRun run;
};

}  // namespace tandem::testing

namespace tandem {
using testing::RowOf;
using testing::SavedBufferFixture;
}  // namespace tandem
