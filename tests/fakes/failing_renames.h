// A disk on which renames fail as they are told to.
#pragma once

#include <cerrno>
#include <set>
#include <string>

#include "controller/store/checkpoint_index.h"

namespace tandem::testing {

class FailingRenames : public FolderRenames {
 public:
  int Rename(const std::string& from, const std::string& to) const override {
    ++renames;
    return fails.contains(renames) ? error : FolderRenames::Rename(from, to);
  }
  int Exchange(const std::string& a, const std::string& b) const override {
    return exchange_error == 0 ? FolderRenames::Exchange(a, b) : exchange_error;
  }
  bool CanMove(const std::string& from_folder, const std::string& to_folder) const override {
    return mounts.contains(from_folder) == mounts.contains(to_folder) || from_folder == to_folder;
  }

  int exchange_error = 0;
  int error = EIO;
  std::set<int> fails;           // the numbers of the renames that fail, from 1
  std::set<std::string> mounts;  // folders of another file system than all others
  mutable int renames = 0;
};

}  // namespace tandem::testing
