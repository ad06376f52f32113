# What the build needs, by name, with the message a person needs when it is absent.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)

set(SHARDMARK_MPICC "" CACHE STRING "the MPI compiler wrapper to ask; empty: the first mpicc found")
if(SHARDMARK_MPICC)
  set(MPI_C_COMPILER ${SHARDMARK_MPICC})
  string(REGEX REPLACE "mpicc([^/]*)$" "mpiexec\\1" launcher ${SHARDMARK_MPICC}) # mpicc.mpich: mpiexec.mpich
  find_program(MPIEXEC_EXECUTABLE ${launcher})
endif()
find_package(MPI REQUIRED COMPONENTS C)

pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.12)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc>=2.0)
set(YAML_LIBRARIES PkgConfig::YAML)
set(JANSSON_LIBRARIES PkgConfig::JANSSON)
set(HWLOC_LIBRARIES PkgConfig::HWLOC)

find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(dnnl_found INTERFACE)
target_include_directories(dnnl_found INTERFACE ${DNNL_INCLUDE})
target_link_libraries(dnnl_found INTERFACE ${DNNL_LIBRARY})
set(DNNL_LIBRARIES dnnl_found)

if(SHARDMARK_TESTS)
  pkg_check_modules(CUNIT QUIET IMPORTED_TARGET cunit)
  if(CUNIT_FOUND)
    set(CUNIT_LIBRARIES PkgConfig::CUNIT)
  else()
    find_library(CUNIT_LIBRARY cunit REQUIRED)
    set(CUNIT_LIBRARIES ${CUNIT_LIBRARY})
  endif()
endif()

# How tests start K ranks: ci/mpirun K program..., which knows both MPIs.
set(SHARDMARK_MPIRUN ${CMAKE_SOURCE_DIR}/ci/mpirun)
set(SHARDMARK_TEST_ENVIRONMENT "SHARDMARK_MPIEXEC=${MPIEXEC_EXECUTABLE}")
