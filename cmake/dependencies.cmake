# What the build needs.  All that is missing is listed at once, each with its Debian package and
# smallest version; nothing is downloaded.
set(SHARDMARK_MISSING "")
macro(missing text)
  string(APPEND SHARDMARK_MISSING "\n  missing: ${text}")
endmacro()

find_package(Threads REQUIRED)
find_package(OpenMP QUIET COMPONENTS C)
if(NOT OpenMP_C_FOUND)
  missing("OpenMP of the C compiler (libgomp1 with gcc; libomp-dev with clang)")
endif()

# --- MPI: the first mpicc found, or the one that is named ------------------------------------
set(SHARDMARK_MPICC "" CACHE STRING "the MPI compiler wrapper to ask; empty: the first mpicc found")
if(SHARDMARK_MPI)
  if(SHARDMARK_MPICC)
    find_program(SHARDMARK_MPICC_PATH ${SHARDMARK_MPICC})
    if(SHARDMARK_MPICC_PATH)
      set(MPI_C_COMPILER ${SHARDMARK_MPICC_PATH})
      # Its own launcher: mpicc.mpich is started by mpiexec.mpich, not by the system's mpiexec.
      string(REGEX REPLACE "mpicc([^/]*)$" "mpiexec\\1" launcher "${SHARDMARK_MPICC_PATH}")
      if(EXISTS ${launcher})
        set(MPIEXEC_EXECUTABLE ${launcher} CACHE FILEPATH "the launcher of the tests")
      endif()
    else()
      missing("${SHARDMARK_MPICC}, which SHARDMARK_MPICC names (libmpich-dev, libopenmpi-dev)")
    endif()
  endif()
  find_package(MPI 3.1 QUIET COMPONENTS C)
  if(NOT MPI_C_FOUND)
    missing("MPI 3.1 (libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich)")
  elseif(NOT MPIEXEC_EXECUTABLE)
    missing("mpirun or mpiexec (openmpi-bin, or mpich)")
  endif()
endif()

# --- libraries with a pkg-config file --------------------------------------------------------
find_package(PkgConfig QUIET)
macro(pkg_library prefix module text)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(${prefix} QUIET IMPORTED_TARGET "${module}")
  endif()
  if(${prefix}_FOUND)
    set(${prefix}_LIBRARIES PkgConfig::${prefix})
  else()
    missing("${text}")
  endif()
endmacro()
if(NOT PKG_CONFIG_FOUND)
  missing("pkg-config (pkg-config), which finds the next ones")
endif()
pkg_library(YAML yaml-0.1>=0.2 "libyaml 0.2 (libyaml-dev)")
pkg_library(JANSSON jansson>=2.12 "jansson 2.12 (libjansson-dev)")
pkg_library(HWLOC hwloc>=2.0 "hwloc 2.0 (libhwloc-dev)")

# --- oneDNN 2 or 3: both have oneapi/dnnl/ ---------------------------------------------------
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h)
find_library(DNNL_LIBRARY dnnl)
if(DNNL_INCLUDE AND DNNL_LIBRARY)
  file(STRINGS ${DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h dnnl_lines REGEX "define DNNL_VERSION_(MAJOR|MINOR) +[0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" dnnl_numbers "${dnnl_lines}")
  string(REPLACE ";" "." DNNL_VERSION "${dnnl_numbers}")
endif()
if(NOT DNNL_VERSION OR DNNL_VERSION VERSION_LESS 2.6 OR DNNL_VERSION VERSION_GREATER_EQUAL 4)
  missing("oneDNN 2.6 or 3 (libdnnl-dev); found: ${DNNL_VERSION}")
else()
  message(STATUS "oneDNN ${DNNL_VERSION}: ${DNNL_LIBRARY}")
  add_library(dnnl_found INTERFACE)
  target_include_directories(dnnl_found INTERFACE ${DNNL_INCLUDE})
  target_link_libraries(dnnl_found INTERFACE ${DNNL_LIBRARY})
  set(DNNL_LIBRARIES dnnl_found)
endif()

# --- CUnit: some systems install it without a pkg-config file --------------------------------
if(SHARDMARK_TESTS)
  find_path(CUNIT_INCLUDE CUnit/Basic.h)
  find_library(CUNIT_LIBRARY cunit)
  if(CUNIT_INCLUDE AND CUNIT_LIBRARY)
    add_library(cunit_found INTERFACE)
    target_include_directories(cunit_found INTERFACE ${CUNIT_INCLUDE})
    target_link_libraries(cunit_found INTERFACE ${CUNIT_LIBRARY})
    set(CUNIT_LIBRARIES cunit_found)
  else()
    missing("CUnit 2.1 (libcunit1-dev), or build without tests: -DSHARDMARK_TESTS=OFF")
  endif()
endif()

if(SHARDMARK_MISSING)
  message(FATAL_ERROR "What the build needs is not all here:${SHARDMARK_MISSING}")
endif()

# --- how tests are run -----------------------------------------------------------------------
# K ranks: ci/mpirun K program..., which knows both MPIs.
set(SHARDMARK_MPIRUN ${CMAKE_SOURCE_DIR}/ci/mpirun)
# OpenMP threads that wait sleep, as in the trainer: tests share their cores with one another.
set(SHARDMARK_TEST_ENVIRONMENT "OMP_WAIT_POLICY=passive")
if(SHARDMARK_MPI)
  list(APPEND SHARDMARK_TEST_ENVIRONMENT "SHARDMARK_MPIEXEC=${MPIEXEC_EXECUTABLE}")
endif()
set(SHARDMARK_TEST_SECONDS 120) # a limit for hangs: tests take a few
if(SHARDMARK_SANITIZE)
  set(SHARDMARK_TEST_SECONDS 400)
  if(SHARDMARK_CUDA_HOST) # fibres under a sanitizer: attention takes a minute of a processor, and shares it
    set(SHARDMARK_TEST_SECONDS 1200)
  endif()
endif()

# Leaks of MPI are known by library name, which only the slow unwinder sees: tests without MPI
# are spared it (it makes a parser of JSON 20 times slower).  OpenMP's barriers are unknown to
# ThreadSanitizer, so one thread; and the longest history, for what MPI touched is known by the stack
# of that access, and one whose stack is lost is no longer told from ours.
set(SHARDMARK_MPI_TEST_ENVIRONMENT "")
if(SHARDMARK_SANITIZE STREQUAL "address")
  list(APPEND SHARDMARK_MPI_TEST_ENVIRONMENT
    "ASAN_OPTIONS=fast_unwind_on_malloc=0"
    "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/ci/lsan.supp:print_suppressions=0")
  list(APPEND SHARDMARK_TEST_ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1")
elseif(SHARDMARK_SANITIZE STREQUAL "thread")
  list(APPEND SHARDMARK_TEST_ENVIRONMENT
    "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/ci/tsan.supp:second_deadlock_stack=1:history_size=7"
    "OMP_NUM_THREADS=1")
endif()
