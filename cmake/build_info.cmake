# Writes OUTPUT, what a program can say of its own build; only when that has changed.  Run at every build.
find_package(Git QUIET)
set(commit unknown)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    execute_process(COMMAND ${GIT_EXECUTABLE} status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE}
                    OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(commit ${head})
    if(changes)
      set(commit "${head}+")
    endif()
  endif()
endif()
if(SANITIZE)
  string(APPEND TYPE ", ${SANITIZE} sanitizer")
endif()
set(text "/* Written at every build by cmake/build_info.cmake. */
#define BUILD_INFO_VERSION \"${VERSION}\"
#define BUILD_INFO_COMMIT \"${commit}\"
#define BUILD_INFO_COMPILER \"${COMPILER}\"
#define BUILD_INFO_TYPE \"${TYPE}\"
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
