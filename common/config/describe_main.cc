// Prints docs/reference/config.md: build/bin/tandem-config-docs > docs/reference/config.md
// With --verl docs/reference/verl.md: build/bin/tandem-config-docs --verl > docs/reference/verl.md
#include <iostream>
#include <string>

#include "common/base/build_info.h"
#include "common/config/config.h"
#include "common/process/exit_code.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::cout << tandem::BuildText(tandem::ThisBuild(), "tandem-config-docs") << "\n";
  } else if (argc == 2 && std::string(argv[1]) == "--verl") {
    std::cout << tandem::VerlMarkdown();
  } else if (argc == 1) {
    std::cout << tandem::ConfigMarkdown();
  } else {
    std::cerr << "tandem-config-docs takes no argument but --version and --verl, not " << argv[1]
              << "\n";
    return tandem::kExitRefused;
  }
  return std::cout.good() ? 0 : 1;
}
