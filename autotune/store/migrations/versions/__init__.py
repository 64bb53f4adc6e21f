"""The migrations, a numbered file each; one that has been released is never changed."""
