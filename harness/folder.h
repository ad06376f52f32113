/* folder.h - whole folders: emptiness, size, removal. */
#ifndef HARNESS_FOLDER_H
#define HARNESS_FOLDER_H
#include <stdbool.h>
bool folder_is_empty(const char *path);  /* false if it cannot be read */
double folder_bytes(const char *path);   /* of the regular files below; links are not followed */
void folder_remove(const char *path);    /* with all that is in it, as far as it can be; links are not followed */
#endif
